"""A running normaliser of frames: encoder and decoder process the difference from the mean image.

With DreamerV3's plain squared error of whole frames, Pong's KL stayed under the free nat, and neither ball nor paddles
were reconstructed after 3,000 updates (preset `tiny`, 20 random episodes): convolutions first spend a thousand updates
on the background, and a one-pixel ball costs less than the KL of its position. With the difference and V's weighted
error (`models/vae/loss.py`) they were, after 500 updates, at 10 nats of KL. The weights without the difference left KL
at about one nat over 1,000 updates.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from wm.models.dreamer.config import DreamerConfig
from wm.models.pixel_weights import count_colours, look_up, table_size, weight_table

MIN_FREQUENCY = 1e-4  # rarer colours weigh no more; at an exponent of 0.5 that is a hundred times a constant pixel
SAMPLED_FRAMES = 64  # of a batch: statistics averaged over many updates need no more
AVERAGED_UPDATES = 1000  # span of the running averages


class ReconstructionWeights(NamedTuple):
    """The reconstruction loss: the `decoded_share` of a batch's frames, drawn at random; the `nats` that always
    predicting the mean image costs (0: the summed squared error); and the exponent of `pixel_weighting` by inverse
    frequency (0: all pixels alike)."""

    decoded_share: float = 1.0
    nats: float = 0.0
    pixel_weighting: float = 0.0


PLAIN = ReconstructionWeights()


class RunningFrameNorm(nn.Module):
    """Running averages over frames: the mean image, the variance about it, how frequent each colour is at each pixel,
    and the weighted squared error of the mean image."""

    updates: Tensor
    mean: Tensor
    variance: Tensor
    frequency: Tensor
    mean_image_error: Tensor

    def __init__(self, config: DreamerConfig) -> None:
        super().__init__()
        size, channels = config.size, config.channels
        self.register_buffer("updates", torch.zeros(()))
        # Gray until the first update, which replaces it.
        self.register_buffer("mean", torch.full((size, size, channels), 0.5))
        self.register_buffer("variance", torch.ones(()))
        self.register_buffer("frequency", torch.zeros(table_size(size, channels)))
        self.register_buffer("mean_image_error", torch.zeros(()))

    def forward(self, frames: Tensor) -> Tensor:
        """(N, H, W, C) uint8 frames -> (frame - mean image) / standard deviation."""
        # A deviation of 0.003, less than a level of 1/255: pixels that never change would otherwise be infinite.
        scale = self.variance.clamp(min=1e-5).rsqrt()
        return (frames.float() / 255 - self.mean) * scale

    def to_frames(self, difference: Tensor) -> Tensor:
        """(N, H, W, C) decoded differences -> uint8 frames."""
        return ((self.mean + difference) * 255).round().clamp(0, 255).to(torch.uint8)

    @torch.no_grad()
    def update(self, frames: Tensor, weights: ReconstructionWeights) -> None:
        """Update the averages with (N, H, W, C) uint8 frames, or a sample of them."""
        frames = frames[:: max(len(frames) // SAMPLED_FRAMES, 1)]
        # The first thousand updates weigh alike: a fixed small rate would keep the gray image for thousands of them.
        rate = 1 / (self.updates + 1).clamp(max=AVERAGED_UPDATES)
        self.updates += 1
        images = frames.float() / 255
        self.mean.lerp_(images.mean(0), rate)
        error = (images - self.mean).square()
        self.variance.lerp_(error.mean(), rate)
        if weights.pixel_weighting:
            self.frequency.lerp_(count_colours(frames) / len(frames), rate)
        self.mean_image_error.lerp_(_per_frame(self._pixel_weights(frames, weights) * error), rate)

    def loss(self, difference: Tensor, frames: Tensor, weights: ReconstructionWeights) -> tuple[Tensor, Tensor]:
        """The loss in nats of decoded differences (N, H, W, C) for uint8 frames, and their plain squared error: means
        over frames."""
        square = (self.mean + difference - frames.float() / 255).square()
        # Of all-equal frames the error is 0; a thousandth keeps the scale finite.
        scale = weights.nats / self.mean_image_error.clamp(min=1e-3) if weights.nats else 1
        return scale * _per_frame(self._pixel_weights(frames, weights) * square), _per_frame(square).detach()

    def _pixel_weights(self, frames: Tensor, weights: ReconstructionWeights) -> Tensor:
        if not weights.pixel_weighting:
            return torch.ones((), device=frames.device)
        return look_up(weight_table(self.frequency, weights.pixel_weighting, MIN_FREQUENCY), frames)[..., None]


def _per_frame(errors: Tensor) -> Tensor:
    return errors.sum((1, 2, 3)).mean()
