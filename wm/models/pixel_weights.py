"""Rarity weights: errors on pixels whose colour is rare at their place count more, so that small moving things count.

A one-pixel ball is a thousandth of a frame's squared error, and a VAE rightly drops it. The weight of a pixel is
p^-exponent, p being how often its colour (2 bits a channel) occurs at its place in the data, capped and divided by
its mean over the data: what is always the same weighs little, what moves weighs much, and no game is special.
"""

import torch
from torch import Tensor

CAP = 1000.0


class PixelWeights:
    """Built from a sample of the data, (N, S, S, C) uint8. An exponent of 0 weighs every pixel alike."""

    def __init__(self, sample: Tensor, exponent: float) -> None:
        seen = sum((occurrences(part) for part in sample.split(256)), torch.zeros((), device=sample.device))
        self._table = weigh(seen / len(sample), exponent, 0.5 / len(sample))

    def __call__(self, frames: Tensor) -> Tensor:
        """(B, S, S, C) uint8 -> (B, S, S) weights with mean 1 over the data."""
        return look_up(self._table, frames)


def cells(size: int, channels: int) -> int:
    """How many colours at how many places there are."""
    return size * size * _colours(channels)


def occurrences(frames: Tensor) -> Tensor:
    """How often each colour occurs at each place of (N, S, S, C) uint8 frames, (cells,)."""
    found = _cells(frames).flatten()
    seen = torch.zeros(cells(frames.shape[1], frames.shape[-1]), device=frames.device)
    return seen.scatter_add_(0, found, torch.ones((), device=frames.device).expand(len(found)))


def weigh(share: Tensor, exponent: float, least: float) -> Tensor:
    """(cells,) weights from the share of frames that have the colour at the place; none counts as rarer than
    `least`."""
    table = share.clamp(min=least).pow(-exponent).clamp(max=CAP)
    return table / ((table * share).sum() / share.sum())


def look_up(table: Tensor, frames: Tensor) -> Tensor:
    """(B, S, S) entries of a table (cells,) for every pixel of (B, S, S, C) uint8 frames."""
    return table.index_select(0, _cells(frames).flatten()).view(frames.shape[:3])


def _colours(channels: int) -> int:
    return 64 if channels == 3 else 4


def _cells(frames: Tensor) -> Tensor:
    """(B, S, S): where the colour of every pixel lies in a table of all places and colours."""
    coarse, size = frames >> 6, frames.shape[1]
    colour = coarse[..., 0]
    if coarse.shape[-1] == 3:
        colour = colour * 16 + coarse[..., 1] * 4 + coarse[..., 2]
    places = torch.arange(size * size, device=frames.device).view(size, size)
    return colour.long() + places * _colours(frames.shape[-1])
