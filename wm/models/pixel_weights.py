"""Pixel weights: errors on pixels whose colour is rare at their place count more, so that small moving objects count.

A one-pixel ball is a thousandth of a frame's squared error, and a VAE rightly drops it. The weight of a pixel is
p^-exponent, p being how often its colour (2 bits a channel) occurs at its place in the data. It is capped, and divided
by its mean over the data: constant pixels weigh little, moving objects weigh much, and no game is special.
"""

import torch
from torch import Tensor

# With the exponent 0.5 and a sample of 4,096 frames no weight is above 91: this bounds larger exponents.
MAX_WEIGHT = 1000.0
# Any number would do; it bounds the memory in which a sample of frames is counted.
FRAMES_PER_BATCH = 256


class PixelWeights:
    """Built from a sample of the data, (N, S, S, C) uint8. An exponent of 0 weighs every pixel alike."""

    def __init__(self, sample: Tensor, exponent: float) -> None:
        parts = sample.split(FRAMES_PER_BATCH)
        counts = sum((count_colours(part) for part in parts), torch.zeros((), device=sample.device))
        self._table = weight_table(counts / len(sample), exponent, 0.5 / len(sample))

    def __call__(self, frames: Tensor) -> Tensor:
        """(B, S, S, C) uint8 -> (B, S, S) weights with mean 1 over the data."""
        return look_up(self._table, frames)


def table_size(size: int, channels: int) -> int:
    """Cells of a table of all places and colours."""
    return size * size * _colour_count(channels)


def count_colours(frames: Tensor) -> Tensor:
    """How often each colour occurs at each place of (N, S, S, C) uint8 frames, (cells,)."""
    cells = _cells(frames).flatten()
    counts = torch.zeros(table_size(frames.shape[1], frames.shape[-1]), device=frames.device)
    return counts.scatter_add_(0, cells, torch.ones((), device=frames.device).expand(len(cells)))


def weight_table(share: Tensor, exponent: float, min_share: float) -> Tensor:
    """(cells,) weights from the share of frames that have the colour at the place; a smaller share counts as
    `min_share`."""
    table = share.clamp(min=min_share).pow(-exponent).clamp(max=MAX_WEIGHT)
    return table / ((table * share).sum() / share.sum())


def look_up(table: Tensor, frames: Tensor) -> Tensor:
    """(B, S, S) entries of a table (cells,) for every pixel of (B, S, S, C) uint8 frames."""
    return table.index_select(0, _cells(frames).flatten()).view(frames.shape[:3])


def _colour_count(channels: int) -> int:
    # Two bits of each channel: 64 colours, or 4 grays.
    return 64 if channels == 3 else 4


def _cells(frames: Tensor) -> Tensor:
    """(B, S, S): the cell of every pixel in a table of all places and colours."""
    coarse, size = frames >> 6, frames.shape[1]
    colour = coarse[..., 0]
    if coarse.shape[-1] == 3:
        colour = colour * 16 + coarse[..., 1] * 4 + coarse[..., 2]
    places = torch.arange(size * size, device=frames.device).view(size, size)
    return colour.long() + places * _colour_count(frames.shape[-1])
