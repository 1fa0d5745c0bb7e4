"""What a wrong pixel costs: V's objective (`models/objective.py`), followed while the data come in.

Plain squared error leaves a one-pixel ball cheaper than the KL it takes to tell where it is.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from wm.models.dreamer.form import Form
from wm.models.rarity import cells, look_up, occurrences, weigh

LEAST = 1e-4  # share of frames below which a colour at a place counts as no rarer
MEMORY = 1000  # updates after which what was seen no longer counts


class Drawing(NamedTuple):
    """Which `share` of the frames of a batch is drawn, drawn by lot; how many nats always showing the mean picture
    would cost (0: the plain summed squared error), and the exponent of rarity (0: all colours alike)."""

    share: float = 1.0
    pixels: float = 0.0
    rarity: float = 0.0


PLAIN = Drawing()


class PictureError(nn.Module):
    """Weighted and plain squared error. What is usual is followed from batch to batch."""

    updates: Tensor
    share: Tensor
    mean: Tensor
    cost: Tensor

    def __init__(self, form: Form) -> None:
        super().__init__()
        size, channels = form.size, form.channels
        self.register_buffer("updates", torch.zeros(()))
        self.register_buffer("share", torch.zeros(cells(size, channels)))
        self.register_buffer("mean", torch.zeros(size, size, channels))
        self.register_buffer("cost", torch.zeros(()))

    def forward(self, drawn: Tensor, frames: Tensor, drawing: Drawing) -> tuple[Tensor, Tensor]:
        """What drawing (N, S, S, C) for uint8 frames costs in nats, and its plain squared error: means of a frame."""
        wanted = frames.float() / 255 - 0.5
        with torch.no_grad():
            rate = 1 / (self.updates + 1).clamp(max=MEMORY)
            self.updates += 1
            self.mean.lerp_(wanted.mean(0), rate)
            weights = (
                self._weights(frames, rate, drawing.rarity) if drawing.rarity else torch.ones_like(wanted[..., :1])
            )
            self.cost.lerp_(_mean(weights * (self.mean - wanted).square()), rate)
            scale = drawing.pixels / self.cost.clamp(min=1e-3) if drawing.pixels else 1
        square = (drawn - wanted).square()
        return scale * _mean(weights * square), _mean(square).detach()

    def _weights(self, frames: Tensor, rate: Tensor, exponent: float) -> Tensor:
        self.share.lerp_(occurrences(frames) / len(frames), rate)
        return look_up(weigh(self.share, exponent, LEAST), frames)[..., None]


def _mean(errors: Tensor) -> Tensor:
    return errors.sum((1, 2, 3)).mean()
