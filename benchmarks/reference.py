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

LATENT, HIDDEN, MIXTURES = 32, 256, 5


class PlainVae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
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
    held = torch.from_numpy(np.ascontiguousarray(frames.transpose(0, 3, 1, 2)))

    def step() -> int:
        x = held[random.integers(0, len(held), 32)].float() / 255
        mean, logvar = model.encode(x)
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
