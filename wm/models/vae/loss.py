"""V's loss: weighted squared error + error of the position targets + max(KL, 0.5 nats per latent), all in nats.

The squared error is scaled so that always predicting the mean image costs `reconstruction_nats`, whether images vary
much or little. With one weight on the plain sum in all games LunarLander's V spent 377 nats on the landscape, and a
probe decoded y with R2 0.61 instead of 0.92. Without that scale, pixel weights and position targets it is the loss of
Ha & Schmidhuber (2018). Nothing in it is a constant of a game: all is measured on a sample of the data.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from wm.models.pixel_weights import PixelWeights
from wm.models.vae.networks import Vae, to_images
from wm.models.vae.position_targets import PositionTargets

FRAMES_PER_BATCH = 256  # when the scale is measured


class VaeLossTerms(NamedTuple):
    """Means over the batch: `total` to minimise, plain squared `error` summed over a frame, `kl` (nats), and the mean
    squared `position_error` of the targets predicted from z (1: no better than their mean)."""

    total: Tensor
    error: Tensor
    kl: Tensor
    position_error: Tensor


class VaeLoss(nn.Module):
    """The loss and the V it trains; `sample` (N, S, S, C) uint8 is of the data. Parameters are named like settings."""

    def __init__(
        self,
        vae: Vae,
        sample: Tensor,
        *,
        reconstruction_nats: float,
        pixel_weighting: float,
        position_targets: float,
        kl_tolerance: float,
        orientation_targets: int = 0,
        position_basis: str = "cosines",
    ) -> None:
        super().__init__()
        self.vae = vae
        self._target_nats, self._kl_tolerance = position_targets, kl_tolerance
        self._pixel_weights = PixelWeights(sample, pixel_weighting) if pixel_weighting else None
        self._scale = 1.0
        if reconstruction_nats:
            parts = sample.split(FRAMES_PER_BATCH)
            errors = [self._errors(part, to_images(part), vae.mean_image)[0].sum().item() for part in parts]
            # Of a sample of equal images the error is 0, and the scale would be infinite.
            self._scale = reconstruction_nats / max(sum(errors) / len(sample), 1e-3)
        self.targets = (
            PositionTargets(sample, vae.latent, orientation_targets, position_basis) if position_targets else None
        )
        self.target_head = nn.Linear(vae.latent, self.targets.count) if self.targets else None

    def _errors(self, frames: Tensor, images: Tensor, reconstructions: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted and plain squared error of every frame, (B,) each."""
        square = (reconstructions - images).square().sum(1)
        plain = square.sum(dim=(1, 2))
        if self._pixel_weights is None:
            return plain, plain
        return (self._pixel_weights(frames) * square).sum(dim=(1, 2)), plain

    def forward(self, frames: Tensor, noise: Tensor) -> VaeLossTerms:
        """The loss of (B, S, S, C) uint8 frames with (B, Z) standard normal noise."""
        images = to_images(frames)
        mean, logvar = self.vae.posterior(images)
        z = mean + noise * torch.exp(0.5 * logvar)
        reconstructions = self.vae.decode(z)
        with torch.autocast(frames.device.type, enabled=False):
            weighted, plain = self._errors(frames, images, reconstructions)
            # Summed over latents first: the free nats are of a frame, and latents may share them unevenly.
            kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum(dim=1)
            total = self._scale * weighted.mean() + kl.clamp(min=self._kl_tolerance * self.vae.latent).mean()
            position_error = torch.zeros_like(total)
            if self.targets is not None and self.target_head is not None:
                position_error = (self.target_head(z) - self.targets(images)).square().mean()
                total = total + self._target_nats * self.targets.count * position_error
        return VaeLossTerms(total, plain.detach().mean(), kl.detach().mean(), position_error.detach())
