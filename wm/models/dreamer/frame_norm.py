"""What frames usually look like, followed while they come in: the networks deal with what differs from it.

Without that, convolutions spend their first thousand updates on the background, and plain squared error leaves a
one-pixel ball cheaper than the KL it takes to tell where it is. What a wrong pixel costs is V's objective
(`models/objective.py`).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from wm.models.dreamer.config import DreamerConfig
from wm.models.pixel_weights import cells, look_up, occurrences, weigh

LEAST = 1e-4  # share of frames below which a colour at a place counts as no rarer
FOLLOWED = 64  # frames of a batch that tell enough of what is usual
MEMORY = 1000  # updates after which what was seen no longer counts


class ReconstructionWeights(NamedTuple):
    """Which `share` of the frames of a batch is drawn, chosen by lot; how many nats always showing the mean picture
    would cost (0: the plain summed squared error), and the exponent of rarity (0: all colours alike)."""

    share: float = 1.0
    pixels: float = 0.0
    rarity: float = 0.0


PLAIN = ReconstructionWeights()


class RunningFrameNorm(nn.Module):
    """The mean picture, how much pixels differ from it, which colours are rare where, and what that comes to."""

    updates: Tensor
    mean: Tensor
    variance: Tensor
    frequency: Tensor
    cost: Tensor

    def __init__(self, form: DreamerConfig) -> None:
        super().__init__()
        size, channels = form.size, form.channels
        self.stack = form.stack
        self.register_buffer("updates", torch.zeros(()))
        self.register_buffer("mean", torch.full((size, size, channels), 0.5))
        self.register_buffer("variance", torch.ones(()))
        self.register_buffer("frequency", torch.zeros(cells(size, channels)))
        self.register_buffer("cost", torch.zeros(()))

    def forward(self, frames: Tensor) -> Tensor:
        """(N, H, W, P) uint8 frames as their difference from the mean picture, in its standard deviations."""
        scale = self.variance.clamp(min=1e-5).rsqrt()
        return (frames.float() / 255 - self.mean.repeat(1, 1, self.stack)) * scale

    def picture(self, difference: Tensor) -> Tensor:
        """(N, H, W, C) drawn differences as uint8 frames."""
        return ((self.mean + difference) * 255).round().clamp(0, 255).to(torch.uint8)

    @torch.no_grad()
    def follow(self, frames: Tensor, drawing: ReconstructionWeights) -> None:
        """Take in (N, H, W, C) uint8 frames, or some of them where they are many."""
        frames = frames[:: max(len(frames) // FOLLOWED, 1)]
        rate = 1 / (self.updates + 1).clamp(max=MEMORY)
        self.updates += 1
        shown = frames.float() / 255
        self.mean.lerp_(shown.mean(0), rate)
        error = (shown - self.mean).square()
        self.variance.lerp_(error.mean(), rate)
        if drawing.rarity:
            self.frequency.lerp_(occurrences(frames) / len(frames), rate)
        self.cost.lerp_(_per_frame(self._weights(frames, drawing) * error), rate)

    def error(self, difference: Tensor, frames: Tensor, drawing: ReconstructionWeights) -> tuple[Tensor, Tensor]:
        """What drawing (N, H, W, C) differences for uint8 frames costs in nats, and its plain squared error: means of
        a frame."""
        square = (self.mean + difference - frames.float() / 255).square()
        scale = drawing.pixels / self.cost.clamp(min=1e-3) if drawing.pixels else 1
        return scale * _per_frame(self._weights(frames, drawing) * square), _per_frame(square).detach()

    def _weights(self, frames: Tensor, drawing: ReconstructionWeights) -> Tensor:
        if not drawing.rarity:
            return torch.ones((), device=frames.device)
        return look_up(weigh(self.frequency, drawing.rarity, LEAST), frames)[..., None]


def _per_frame(errors: Tensor) -> Tensor:
    return errors.sum((1, 2, 3)).mean()
