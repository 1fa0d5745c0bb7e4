"""What the training benchmarks compare with: plain loops as the best known public code has them. The paper's network as
it is written down, frames in RAM, contiguous float32, batch 32; nn.LSTM, batch 16, windows of 32, RMSprop."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.episodes.latents import Latents

# The sizes of Ha & Schmidhuber (2018); reward bins are the rollout network's.
LATENT, HIDDEN, MIXTURES, REWARD_BINS = 32, 256, 5, 49


class PlainVae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # The paper's encoder: 32, 64, 128 and 256 channels.
        widths = (3, 32, 64, 128, 256)
        self.encoder = nn.Sequential(
            *(layer for a, b in itertools.pairwise(widths) for layer in (nn.Conv2d(a, b, 4, 2), nn.ReLU()))
        )
        self.mean, self.logvar, self.expand = nn.Linear(1024, LATENT), nn.Linear(1024, LATENT), nn.Linear(LATENT, 1024)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(1024, 128, 5, 2),
            nn.ReLU(),
            nn.ConvTranspose2d(128, 64, 5, 2),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 6, 2),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 3, 6, 2),
            nn.Sigmoid(),
        )

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encoder(x).flatten(1)
        return self.mean(x), self.logvar(x)


def plain_vae_step(frames: np.ndarray) -> Callable[[], int]:
    """A step of training on frames (N, 64, 64, 3) uint8 in RAM; returns images."""
    torch.manual_seed(0)
    model, random = PlainVae(), np.random.default_rng(0)
    optimizer = torch.optim.Adam(model.parameters())
    images = torch.from_numpy(np.ascontiguousarray(frames.transpose(0, 3, 1, 2)))

    def step() -> int:
        x = images[random.integers(0, len(images), 32)].float() / 255
        mean, logvar = model.encode(x)
        # The same loss as ours with the paper's settings, written plainly.
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
        drawn = model.decoder(model.expand(z)[:, :, None, None])
        divergence = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(1)
        loss = (drawn - x).square().sum((1, 2, 3)).mean() + divergence.clamp(min=0.5 * LATENT).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return 32

    return step


class PlainMdnRnn(nn.Module):
    def __init__(self, action: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(LATENT + action, HIDDEN, batch_first=True)
        self.heads = nn.Linear(HIDDEN, 3 * LATENT * MIXTURES + 2)


def plain_mdnrnn_step(latents: Latents) -> Callable[[], int]:
    """A step of training on the latents; returns steps of sequences."""
    torch.manual_seed(0)
    model, random, length, batch = PlainMdnRnn(latents.space.width), np.random.default_rng(0), 32, 16
    # As in ctallec/world-models, with windows of 32 and batches of 16.
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3, alpha=0.9)
    actions = torch.from_numpy(latents.space.encode(latents.actions))
    means, stds = torch.from_numpy(latents.means), torch.from_numpy(np.exp(0.5 * latents.logvars))
    rewards = torch.from_numpy(latents.rewards)

    def step() -> int:
        rows = torch.from_numpy(random.integers(0, latents.rows - length - 1, batch)[:, None] + np.arange(length + 1))
        z = means[rows] + stds[rows] * torch.randn(batch, length + 1, LATENT)
        out = model.heads(model.lstm(torch.cat([z[:, :-1], actions[rows[:, :-1]]], -1))[0])
        logits, mean, log_sigma = out[..., :-2].unflatten(-1, (3, LATENT, MIXTURES)).unbind(-3)
        target = z[:, 1:, :, None]
        each = -log_sigma - 0.5 * ((target - mean) / log_sigma.exp()).square() - 0.5 * math.log(2 * math.pi)
        loss = -torch.logsumexp(torch.log_softmax(logits, -1) + each, -1).mean()
        loss = loss + functional.mse_loss(out[..., -2], rewards[rows[:, :-1]])
        loss = loss + functional.binary_cross_entropy_with_logits(out[..., -1], torch.zeros(batch, length))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return batch * length

    return step


class PlainRollout(nn.Module):
    """The rollout network without memory, as it is written down: one step of all windows after the other."""

    def __init__(self, action: int) -> None:
        super().__init__()
        self.change = _mlp(3 * LATENT + 2 * action, 384, LATENT)
        self.reward = _mlp(3 * LATENT + action, 128, 2 * REWARD_BINS)  # of a step that goes on, and of an end
        self.end = _mlp(3 * LATENT + action, 128, 1)


def _mlp(inputs: int, units: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, units), nn.SiLU(), nn.Linear(units, units), nn.SiLU(), nn.Linear(units, outputs)
    )


def plain_rollout_step(latents: Latents, warm_up: int, steps: int, batch: int) -> Callable[[], int]:
    """A step of training on windows of latents: a rollout of so many `steps` after a warm-up on real ones. Rewards are
    learned from real transitions, ends in every second window from those of the rollout. Returns steps of windows."""
    torch.manual_seed(0)
    width, length = latents.space.width, warm_up + steps
    model, random = PlainRollout(width), np.random.default_rng(0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    actions = torch.from_numpy(latents.space.encode(latents.actions))
    means, stds = torch.from_numpy(latents.means), torch.from_numpy(np.exp(0.5 * latents.logvars))
    rewards, ends = torch.from_numpy(latents.rewards), torch.zeros(latents.rows)
    moved = (means[1:] - means[:-1]).std(0)
    # symlog of rewards up to 400 (wm/models/mdnrnn/rollout_network.py).
    bins = torch.linspace(-6, 6, REWARD_BINS)
    bins = bins.sign() * bins.abs().expm1()

    def two_hot(value: Tensor) -> Tensor:
        upper = torch.searchsorted(bins, value).clamp(1, REWARD_BINS - 1)
        share = (value - bins[upper - 1]) / (bins[upper] - bins[upper - 1])
        target = torch.zeros(len(value), REWARD_BINS)
        target.scatter_(1, upper[:, None] - 1, 1 - share[:, None])
        return target.scatter_(1, upper[:, None], share[:, None])

    def step() -> int:
        rows = torch.from_numpy(random.integers(1, latents.rows - length - 1, batch))
        z = means[rows] + 0.5 * stds[rows] * torch.randn(batch, LATENT)
        before, action_before, loss = z, torch.zeros(batch, width), torch.zeros(())
        for number in range(length):
            here, action, following = means[rows + number], actions[rows + number], means[rows + number + 1]
            if 0 < number <= warm_up:
                z = here + 0.5 * stds[rows + number] * torch.randn(batch, LATENT)
            difference = (z - before) / moved
            change = model.change(torch.cat([z, difference, action, difference, action_before], 1))
            before, action_before, z = z, action, z + change * moved
            loss = loss + functional.smooth_l1_loss(z / moved, following / moved)
            if number >= warm_up:
                real = torch.cat(
                    [here, (here - means[rows + number - 1]) / moved, action, (following - here) / moved], 1
                )
                dreamt = torch.cat([before, difference, action, (z - before) / moved], 1).detach()
                mixed = torch.where(torch.arange(batch)[:, None] % 2 == 0, real, dreamt)
                going_on, last = model.reward(real).chunk(2, 1)
                ended = ends[rows + number]
                reward = torch.where(ended[:, None] > 0, last, going_on)
                loss = loss + functional.cross_entropy(reward, two_hot(rewards[rows + number]))
                end = model.end(mixed).squeeze(1)
                loss = loss + functional.binary_cross_entropy_with_logits(end, ended)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return batch * length

    return step


def plain_dream(count: int, action: int) -> Callable[[], int]:
    """A step of `count` dreams; returns count."""
    torch.manual_seed(0)
    cell, heads = nn.LSTMCell(LATENT + action, HIDDEN), nn.Linear(HIDDEN, 3 * LATENT * MIXTURES + 2)
    state = [torch.zeros(count, LATENT), torch.zeros(count, HIDDEN), torch.zeros(count, HIDDEN)]
    actions = torch.zeros(count, action)

    @torch.no_grad()
    def step() -> int:
        z, h, c = state
        h, c = cell(torch.cat([z, actions], 1), (h, c))
        out = heads(h)
        logits, mean, log_sigma = out[:, :-2].unflatten(1, (3, LATENT, MIXTURES)).unbind(1)
        chosen = torch.distributions.Categorical(logits=logits).sample()[..., None]
        mean, sigma = mean.gather(-1, chosen).squeeze(-1), log_sigma.gather(-1, chosen).squeeze(-1).exp()
        torch.bernoulli(torch.sigmoid(out[:, -1]))
        state[:] = [torch.distributions.Normal(mean, sigma).sample(), h, c]
        return count

    return step
