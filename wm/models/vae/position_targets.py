"""PositionTargets: where things are, as few numbers that a latent should tell linearly.

C is linear, and so is what M's first layer does with z; but the code a VAE finds for a position is a curve through its
latent space, and a small thing's position it may not find at all. A picture's low-frequency cosine moments

    m[c, k, l] = sum over x, y of (frame - mean picture)[c, y, x] cos(pi k (y + 1/2) / S) cos(pi l (x + 1/2) / S),

k, l < K, are linear in the picture, and the position of a small thing is very nearly linear in them. They are made
alike by their principal components over the data, each divided by its deviation, so that a ball counts as much as the
sky; what varies less than uint8 rounds is left small. While V trains, a linear layer reads them from z. K is 4 for the
usual 32 latents and 3 colours: with more, z cannot hold them all and tells them less well.

Cosines are for pictures full of things. Where one thing moves before nothing, Legendre polynomials P_k over [-1, 1] in
their stead need fewer numbers: P_1 is the place itself, so that two per axis read it without a curve.

How things are turned is not linear in the picture. It is, over a quarter turn, in moments of its structure tensor
(Bigun & Granlund 1987): of g_x g_y, g_x^2 - g_y^2 and g_x^2 + g_y^2, with g the gradient of the difference from the
mean picture in each of its principal colours. With
`orientation_targets` > 0 these are targets too, for so many cosines per axis.
Shapes: B batch, S frame side, C channels, N components, Q orientation_targets.
"""

import math

import torch
from numpy.polynomial.legendre import legvander
from torch import Tensor, nn
from torch.nn import functional

from wm.models.vae.networks import pictures

PER_LATENT = 1.7  # moments, at most
ROUNDING = 8e-4  # deviation of a moment that comes of rounding to uint8, per pixel of the side


class PositionTargets(nn.Module):
    """Built from a sample of the data, (N, S, S, C) uint8, for V of so many latents; `basis` is cosines or
    polynomials."""

    basis: Tensor
    background: Tensor
    colours: Tensor
    mean: Tensor
    components: Tensor

    def __init__(self, sample: Tensor, latent: int, orientation_targets: int = 0, basis: str = "cosines") -> None:
        super().__init__()
        size, channels = sample.shape[1], sample.shape[3]
        self._orientations = orientation_targets
        room = PER_LATENT * latent / channels - 3 * orientation_targets**2
        self._positions = max(int(math.sqrt(max(room, 0))), 2)
        count = max(self._positions, orientation_targets)
        self.register_buffer("basis", _along_an_axis(basis, count, size).to(sample.device))
        if orientation_targets:
            self.register_buffer("background", pictures(sample).mean(0))
            difference = (pictures(sample) - self.background).movedim(1, -1).flatten(0, -2)
            variance, axes = torch.linalg.eigh(difference.T @ difference / len(difference))
            self.register_buffer("colours", axes / (variance + 1 / 255**2).sqrt())
        raw = torch.cat([self._raw(pictures(part)) for part in sample.split(256)])
        self.register_buffer("mean", raw.mean(0))
        _, singular, axes = torch.linalg.svd(raw - self.mean, full_matrices=False)
        deviation = singular / math.sqrt(len(raw))
        scale = torch.sqrt(deviation.square() + (ROUNDING * size) ** 2)
        self.register_buffer("components", (axes / scale[:, None]).T.contiguous())

    @property
    def count(self) -> int:
        """N."""
        return self.components.shape[1]

    def _raw(self, shown: Tensor) -> Tensor:
        found = _moments(shown, self.basis[: self._positions])
        if not self._orientations:
            return found
        turned = _structure(torch.einsum("bcyx,cd->bdyx", shown - self.background, self.colours))
        return torch.cat([found, _moments(turned, self.basis[: self._orientations])], 1)

    def forward(self, shown: Tensor) -> Tensor:
        """(B, C, S, S) in [0, 1] -> (B, N), of variance 1 or less over the data."""
        return (self._raw(shown) - self.mean) @ self.components


def _along_an_axis(basis: str, count: int, size: int) -> Tensor:
    """(K, S): the functions whose products weigh a picture."""
    places = torch.arange(size) + 0.5
    if basis == "polynomials":
        return torch.from_numpy(legvander(2 * places.double().numpy() / size - 1, count - 1).T).float()
    return torch.cos(torch.arange(count)[:, None] * (places * math.pi / size))


def _moments(fields: Tensor, basis: Tensor) -> Tensor:
    """(B, F, S, S) and (K, S) -> (B, F K K)."""
    return torch.einsum("bcyx,ky,lx->bckl", fields, basis, basis).flatten(1)


def _structure(colours: Tensor) -> Tensor:
    """(B, C, S, S) -> (B, 3 C, S, S): the three numbers of each colour's structure tensor at every place."""
    across = functional.pad(colours[..., 2:] - colours[..., :-2], (1, 1))
    down = functional.pad(colours[..., 2:, :] - colours[..., :-2, :], (0, 0, 1, 1))
    return torch.cat([across * down, across.square() - down.square(), across.square() + down.square()], 1)
