"""PositionTargets: where objects are, as a few numbers that are to be linearly decodable from z.

C is linear, and so is M's first layer; but a VAE's code for a position is a curve through its latent space, and a small
object's position may be missing from it. An image's low-frequency cosine moments

    m[c, k, l] = sum over x, y of (image - mean image)[c, y, x] cos(pi k (y + 1/2) / S) cos(pi l (x + 1/2) / S),

k, l < K, are linear in the image, and the position of a small object is very nearly linear in them: a linear probe of
the moments alone decodes Pong's ball with R2 0.99. They are whitened by their principal components over the data, so
that a ball counts as much as the sky; what varies less than uint8 rounding stays small, and what hardly varies is left
out. While V trains, a linear head
predicts them from z. K is 4 for the usual 32 latents and 3 colours: with more, z holds each of them less well.

Cosines are for images full of objects. Where one object moves on an empty ground, Legendre polynomials P_k over [-1, 1]
need fewer numbers: P_1 is the position itself, so that two per axis decode it without a curve.

An object's orientation is not linear in the image. Over a quarter turn it is linear in moments of the structure tensor
(Bigun & Granlund 1987): of g_x g_y, g_x^2 - g_y^2 and g_x^2 + g_y^2, with g the gradient of the difference from the
mean image in each of its principal colours. With `orientation_targets` > 0 these are targets too, for so many cosines
per axis.
Shapes: B batch, S frame side, C channels, N components, Q orientation_targets.
"""

import math

import torch
from numpy.polynomial.legendre import legvander
from torch import Tensor, nn
from torch.nn import functional

from wm.models.vae.networks import to_images

TARGETS_PER_LATENT = 1.7  # at most: with more, z holds each of them less well
ROUNDING = 8e-4  # deviation of a moment that comes from rounding to uint8, per pixel of the side
UNSEEN = 0.1  # of that: what varies less does not vary in the sample, and would count for thousands where it does
# Deviations. Frames of LunarLander and Pong have up to 17; one of twenty would outweigh hundreds of frames.
MOST = 20.0
# Any number would do; it bounds the memory in which moments are measured.
FRAMES_PER_BATCH = 256


class PositionTargets(nn.Module):
    """Built from a sample of the data, (N, S, S, C) uint8, for V with `latent` dimensions; `basis` is cosines or
    polynomials."""

    basis: Tensor
    mean_image: Tensor
    colours: Tensor
    mean: Tensor
    components: Tensor

    def __init__(self, sample: Tensor, latent: int, orientation_targets: int = 0, basis: str = "cosines") -> None:
        super().__init__()
        size, channels = sample.shape[1], sample.shape[3]
        self._orientations = orientation_targets
        room = TARGETS_PER_LATENT * latent / channels - 3 * orientation_targets**2
        self._positions = max(int(math.sqrt(max(room, 0))), 2)
        count = max(self._positions, orientation_targets)
        self.register_buffer("basis", _basis_functions(basis, count, size).to(sample.device))
        if orientation_targets:
            mean_image, colours = _principal_colours(sample)
            self.register_buffer("mean_image", mean_image)
            self.register_buffer("colours", colours)
        moments = torch.cat([self._moments(to_images(part)) for part in sample.split(FRAMES_PER_BATCH)])
        self.register_buffer("mean", moments.mean(0))
        _, singular, axes = torch.linalg.svd(moments - self.mean, full_matrices=False)
        deviation = singular / math.sqrt(len(moments))
        scale = torch.sqrt(deviation.square() + (ROUNDING * size) ** 2)
        axes = axes / scale[:, None] * (deviation > UNSEEN * ROUNDING * size)[:, None]
        self.register_buffer("components", axes.T.contiguous())

    @property
    def count(self) -> int:
        """N."""
        return self.components.shape[1]

    def _moments(self, images: Tensor) -> Tensor:
        positions = _project(images, self.basis[: self._positions])
        if not self._orientations:
            return positions
        tensor = _structure_tensor(torch.einsum("bcyx,cd->bdyx", images - self.mean_image, self.colours))
        return torch.cat([positions, _project(tensor, self.basis[: self._orientations])], 1)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, S, S) in [0, 1] -> (B, N), of variance 1 or less over the data, within MOST."""
        return ((self._moments(images) - self.mean) @ self.components).clamp(-MOST, MOST)


def _principal_colours(sample: Tensor) -> tuple[Tensor, Tensor]:
    """The mean image (C, S, S), and the axes (C, C) that whiten the colours of differences from it. In place: as floats
    the sample has 200 MB."""
    images = sample.permute(0, 3, 1, 2).float().div_(255)
    mean_image = images.mean(0)
    difference = images.sub_(mean_image).movedim(1, -1).flatten(0, -2)
    variance, axes = torch.linalg.eigh(difference.T @ difference / len(difference))
    # Plus the variance of a level: a direction in which colours hardly differ is rounding.
    return mean_image, axes / (variance + 1 / 255**2).sqrt()


def _basis_functions(basis: str, count: int, size: int) -> Tensor:
    """(K, S): the functions along an axis whose products weigh an image."""
    pixels = torch.arange(size) + 0.5
    if basis == "polynomials":
        return torch.from_numpy(legvander(2 * pixels.double().numpy() / size - 1, count - 1).T).float()
    return torch.cos(torch.arange(count)[:, None] * (pixels * math.pi / size))


def _project(fields: Tensor, basis: Tensor) -> Tensor:
    """(B, F, S, S) and (K, S) -> (B, F K K)."""
    return torch.einsum("bcyx,ky,lx->bckl", fields, basis, basis).flatten(1)


def _structure_tensor(colours: Tensor) -> Tensor:
    """(B, C, S, S) -> (B, 3 C, S, S): the three numbers of each colour's structure tensor at every pixel."""
    across = functional.pad(colours[..., 2:] - colours[..., :-2], (1, 1))
    down = functional.pad(colours[..., 2:, :] - colours[..., :-2, :], (0, 0, 1, 1))
    return torch.cat([across * down, across.square() - down.square(), across.square() + down.square()], 1)
