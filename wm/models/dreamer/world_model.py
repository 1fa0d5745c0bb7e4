"""The world model: encoder, RSSM, decoder, and heads for the reward and the continuation of the episode."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import PLAIN, ReconstructionWeights, RunningFrameNorm
from wm.models.dreamer.layers import Decoder, Encoder, mlp, two_hot_head
from wm.models.dreamer.rssm import Rssm, State

FREE_NATS = 1.0  # of KL without a cost, as in DreamerV3
DYNAMICS, REPRESENTATION = 0.5, 0.1  # weights of KL: of the prior towards the posterior, and the reverse; DreamerV3's


class Batch(NamedTuple):
    """(B, T) steps: a frame, the encoded action that led to it, the reward that came with it, whether it is an
    episode's first, and whether the episode terminated there."""

    frames: Tensor  # (B, T, H, W, C) uint8
    actions: Tensor  # (B, T, A)
    rewards: Tensor  # (B, T)
    first: Tensor  # (B, T)
    terminal: Tensor  # (B, T)


class WorldModel(nn.Module):
    """Encoder, RSSM, decoder and heads."""

    def __init__(self, config: DreamerConfig) -> None:
        super().__init__()
        self.config = config
        self.frame_norm = RunningFrameNorm(config)
        self.encoder = Encoder(config)
        self.rssm = Rssm(config, self.encoder.width)
        self.decoder = Decoder(config)
        self.reward_head = two_hot_head(config)
        self.continue_head = mlp(config.feature_width, config.units, config.layers, 1)

    def loss(
        self, batch: Batch, noise: torch.Generator, weights: ReconstructionWeights = PLAIN
    ) -> tuple[Tensor, dict[str, Tensor], State]:
        """The loss, its parts, and the states (B, T) without their graph.

        Unlike DreamerV3, only a random share of the frames is decoded: the decoder is most of the work on a CPU.
        """
        self.frame_norm.update(batch.frames.flatten(0, 1), weights)
        embeds = self.encode(batch.frames)
        states, posterior, prior = self.rssm.observe(embeds, batch.actions, batch.first, noise)
        features = states.features
        reconstruction, squared_error = self._reconstruction_loss(
            features.flatten(0, 1), batch.frames.flatten(0, 1), noise, weights
        )
        parts = {
            "reconstruction": reconstruction,
            "reward": self.reward_head.loss(self.reward_head(features), batch.rewards).mean(),
            "continue": functional.binary_cross_entropy_with_logits(
                self.continue_head(features).float().squeeze(-1), 1 - batch.terminal
            ),
        }
        # Each side of the KL is held still once: that of the prior weighs five times as much.
        dynamics = self.rssm.kl(posterior.detach(), prior)
        representation = self.rssm.kl(posterior, prior.detach())
        total = sum(parts.values(), torch.zeros((), device=features.device))
        total = (
            total
            + DYNAMICS * dynamics.clamp(min=FREE_NATS).mean()
            + REPRESENTATION * representation.clamp(min=FREE_NATS).mean()
        )
        parts |= {"kl": dynamics.mean(), "squared_error": squared_error}
        return total, {name: part.detach() for name, part in parts.items()}, states.detach()

    def _reconstruction_loss(
        self, features: Tensor, frames: Tensor, noise: torch.Generator, weights: ReconstructionWeights
    ) -> tuple[Tensor, Tensor]:
        if weights.decoded_share < 1:
            count = max(int(weights.decoded_share * len(features)), 1)
            # Drawn anew at each update, so that every frame is decoded in the long run.
            decoded = torch.randperm(len(features), generator=noise, device=features.device)[:count]
            features, frames = features[decoded], frames[decoded]
        return self.frame_norm.loss(self.decoder(features).float(), frames, weights)

    def encode(self, frames: Tensor) -> Tensor:
        """Embeddings (B, T, E) of frames (B, T, H, W, C)."""
        embeds: Tensor = self.encoder(self.frame_norm(frames.flatten(0, 1))).unflatten(0, frames.shape[:2])
        return embeds

    def predict(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The expected reward and the probability that the episode continues, for features (..., F)."""
        continues = torch.sigmoid(self.continue_head(features).float().squeeze(-1))
        return self.reward_head.mean(self.reward_head(features)), continues

    def decode(self, features: Tensor) -> Tensor:
        """(N, H, W, C) uint8 frames of features (N, F)."""
        return self.frame_norm.to_frames(self.decoder(features).float())
