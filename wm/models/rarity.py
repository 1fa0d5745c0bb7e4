"""Rarity weights: errors on pixels whose colour is rare at their place count more, so that small moving things count.

A one-pixel ball is a thousandth of a frame's squared error, and a VAE rightly drops it. The weight of a pixel is
p^-exponent, p being how often its colour (2 bits a channel) occurs at its place in the data, capped and divided by
its mean over the data: what is always the same weighs little, what moves weighs much, and no game is special.
"""

import torch
from torch import Tensor

CAP = 1000.0


class RarityWeights:
    """Built from a sample of the data, (N, S, S, C) uint8. An exponent of 0 weighs every pixel alike."""

    def __init__(self, sample: Tensor, exponent: float) -> None:
        count = 64 if sample.shape[-1] == 3 else 4
        size = sample.shape[1]
        place = torch.arange(size * size, device=sample.device).view(size, size) * count
        seen = torch.zeros(size * size * count, device=sample.device)
        for part in sample.split(256):
            seen += torch.bincount((_bins(part) + place).flatten(), minlength=len(seen))
        share = (seen / len(sample)).clamp(min=0.5 / len(sample))
        table = share.pow(-exponent).clamp(max=CAP)
        self._table = table / ((table * seen).sum() / seen.sum())
        self._place = place

    def __call__(self, frames: Tensor) -> Tensor:
        """(B, S, S, C) uint8 -> (B, 1, S, S) weights with mean 1 over the data."""
        return self._table[_bins(frames) + self._place][:, None]


def _bins(frames: Tensor) -> Tensor:
    """The colour bin of every pixel, (B, S, S)."""
    coarse = (frames >> 6).long()
    if coarse.shape[-1] == 1:
        return coarse[..., 0]
    return coarse[..., 0] * 16 + coarse[..., 1] * 4 + coarse[..., 2]
