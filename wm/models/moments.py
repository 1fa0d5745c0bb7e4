"""Moments: where things are, as few numbers that a latent should tell linearly.

C is linear, and so is what M's first layer does with z; but the code a VAE finds for a position is a curve through its
latent space, and a small thing's position it may not find at all. A picture's low-frequency cosine moments

    m[c, k, l] = sum over x, y of (frame - mean picture)[c, y, x] cos(pi k (y + 1/2) / S) cos(pi l (x + 1/2) / S),

k, l < K, are linear in the picture, and the position of a small thing is very nearly linear in them. They are made
alike by their principal components over the data, each divided by its deviation, so that a ball counts as much as the
sky; what varies less than uint8 rounds is left small. While V trains, a linear layer reads them from z. K is 4 for the
usual 32 latents and 3 colours: with more, z cannot hold them all and tells them less well.
Shapes: B batch, S frame side, C channels, N components.
"""

import math

import torch
from torch import Tensor, nn

from wm.models.vae import pictures

PER_LATENT = 1.7  # moments, at most
ROUNDING = 8e-4  # deviation of a moment that comes of rounding to uint8, per pixel of the side


class Moments(nn.Module):
    """Built from a sample of the data, (N, S, S, C) uint8, for V of so many latents."""

    basis: Tensor
    mean: Tensor
    components: Tensor

    def __init__(self, sample: Tensor, latent: int) -> None:
        super().__init__()
        size, channels = sample.shape[1], sample.shape[3]
        cosines = max(int(math.sqrt(PER_LATENT * latent / channels)), 2)
        places = (torch.arange(size, device=sample.device) + 0.5) * math.pi / size
        waves = torch.arange(cosines, device=sample.device)
        self.register_buffer("basis", torch.cos(waves[:, None] * places))
        raw = torch.cat([self._raw(part) for part in sample.split(256)])
        self.register_buffer("mean", raw.mean(0))
        _, singular, axes = torch.linalg.svd(raw - self.mean, full_matrices=False)
        deviation = singular / math.sqrt(len(raw))
        scale = torch.sqrt(deviation.square() + (ROUNDING * size) ** 2)
        self.register_buffer("components", (axes / scale[:, None]).T.contiguous())

    @property
    def count(self) -> int:
        """N."""
        return self.components.shape[1]

    def _raw(self, frames: Tensor) -> Tensor:
        return torch.einsum("bcyx,ky,lx->bckl", pictures(frames), self.basis, self.basis).flatten(1)

    def forward(self, frames: Tensor) -> Tensor:
        """(B, S, S, C) uint8 -> (B, N), of variance 1 or less over the data."""
        return (self._raw(frames) - self.mean) @ self.components
