"""The world model: encoder, RSSM, decoder, and heads for the reward and for whether it goes on."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import PLAIN, ReconstructionWeights, RunningFrameNorm
from wm.models.dreamer.layers import Decoder, Encoder, TwoHot, mlp
from wm.models.dreamer.rssm import Rssm, State

FREE = 1.0  # nats of KL that cost nothing
DYNAMICS, REPRESENTATION = 0.5, 0.1  # how much the prior is drawn to the posterior, and the other way round


class Batch(NamedTuple):
    """(B, T) steps as the world tells them: a frame, the encoded action that led to it, the reward that came with it,
    whether it is an episode's first, and whether the episode terminated there."""

    frames: Tensor  # (B, T, H, W, planes) uint8
    actions: Tensor  # (B, T, A)
    rewards: Tensor  # (B, T)
    first: Tensor  # (B, T)
    terminal: Tensor  # (B, T)


class WorldModel(nn.Module):
    """Everything but the behaviour."""

    def __init__(self, form: DreamerConfig) -> None:
        super().__init__()
        self.form = form
        self.sight = RunningFrameNorm(form)
        self.encoder = Encoder(form)
        self.rssm = Rssm(form, self.encoder.width)
        self.decoder = Decoder(form)
        self.reward = TwoHot(form.feature, form.units, form.layers, form.bins)
        self.goes_on = mlp(form.feature, form.units, form.layers, 1)

    def loss(
        self, batch: Batch, source: torch.Generator, drawing: ReconstructionWeights = PLAIN
    ) -> tuple[Tensor, dict[str, Tensor], State]:
        """The loss, its parts, and the states (B, T) without their history. Only a share of the frames, drawn anew
        each time, goes through the decoder, which is most of the work on a CPU."""
        self.sight.follow(batch.frames[:, :, ..., -self.form.channels :].flatten(0, 1), drawing)
        embeds = self.see(batch.frames)
        states, posterior, prior = self.rssm.observe(embeds, batch.actions, batch.first, source)
        features = states.features
        drawn, plain = self._drawn(features.flatten(0, 1), batch.frames.flatten(0, 1), source, drawing)
        parts = {
            "drawn": drawn,
            "reward": self.reward.loss(self.reward(features), batch.rewards).mean(),
            "end": functional.binary_cross_entropy_with_logits(
                self.goes_on(features).float().squeeze(-1), 1 - batch.terminal
            ),
        }
        dynamics = self.rssm.divergence(posterior.detach(), prior)
        representation = self.rssm.divergence(posterior, prior.detach())
        total = sum(parts.values(), torch.zeros((), device=features.device))
        total = (
            total + DYNAMICS * dynamics.clamp(min=FREE).mean() + REPRESENTATION * representation.clamp(min=FREE).mean()
        )
        parts |= {"kl": dynamics.mean(), "picture": plain}
        return total, {name: part.detach() for name, part in parts.items()}, states.detach()

    def _drawn(
        self, features: Tensor, frames: Tensor, source: torch.Generator, drawing: ReconstructionWeights
    ) -> tuple[Tensor, Tensor]:
        if drawing.share < 1:
            count = max(int(drawing.share * len(features)), 1)
            chosen = torch.randperm(len(features), generator=source, device=features.device)[:count]
            features, frames = features[chosen], frames[chosen]
        return self.sight.error(self.decoder(features).float(), frames[..., -self.form.channels :], drawing)

    def see(self, frames: Tensor) -> Tensor:
        """(B, T, code) of frames (B, T, H, W, P)."""
        embeds: Tensor = self.encoder(self.sight(frames.flatten(0, 1))).unflatten(0, frames.shape[:2])
        return embeds

    def outcome(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The expected reward and the probability of going on, for states (..., F)."""
        return self.reward.value(self.reward(features)), torch.sigmoid(self.goes_on(features).float().squeeze(-1))

    def picture(self, features: Tensor) -> Tensor:
        """(N, H, W, C) uint8 of states (N, F)."""
        return self.sight.picture(self.decoder(features).float())
