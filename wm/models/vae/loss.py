"""What V minimises: weighted squared error + moments not told + max(KL, 0.5 nats per latent), all in nats.

The error is scaled so that always showing the mean picture would cost `pixels` nats, be the picture calm or busy.
Without that scale, rarity and moments it is the loss of Ha & Schmidhuber (2018), summed squared error. Nothing in it is
a constant of a game: scale, rarity and moments are taken from a sample of the data.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from wm.models.pixel_weights import PixelWeights
from wm.models.vae.networks import Vae, pictures
from wm.models.vae.position_targets import PositionTargets


class VaeLossTerms(NamedTuple):
    """Means over the batch: `total` to minimise, plain squared `error` summed over a frame, `divergence` (nats), and
    the `moments`' mean squared error (1 is guessing)."""

    total: Tensor
    error: Tensor
    divergence: Tensor
    moments: Tensor


class VaeLoss(nn.Module):
    """The loss and the V it trains; `sample` (N, S, S, C) uint8 is of the data."""

    def __init__(
        self,
        vae: Vae,
        sample: Tensor,
        *,
        pixels: float,
        rarity: float,
        moments: float,
        kl_tolerance: float,
        orientation_targets: int = 0,
        basis: str = "cosines",
    ) -> None:
        super().__init__()
        self.vae = vae
        self._moments_weight, self._kl_tolerance = moments, kl_tolerance
        self._rarity = PixelWeights(sample, rarity) if rarity else None
        self._scale = 1.0
        if pixels:
            parts = sample.split(256)
            means = [self._errors(part, pictures(part), vae.background)[0].sum().item() for part in parts]
            self._scale = pixels / max(sum(means) / len(sample), 1e-3)
        self.moments = PositionTargets(sample, vae.latent, orientation_targets, basis) if moments else None
        self.reader = nn.Linear(vae.latent, self.moments.count) if self.moments else None

    def _errors(self, frames: Tensor, shown: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted and plain squared error of every frame, (B,) each."""
        square = (drawn - shown).square().sum(1)
        plain = square.sum(dim=(1, 2))
        return plain if self._rarity is None else (self._rarity(frames) * square).sum(dim=(1, 2)), plain

    def forward(self, frames: Tensor, noise: Tensor) -> VaeLossTerms:
        """The loss of (B, S, S, C) uint8 frames with (B, Z) standard normal noise."""
        shown = pictures(frames)
        mean, logvar = self.vae.posterior(shown)
        z = mean + noise * torch.exp(0.5 * logvar)
        drawn = self.vae.decode(z)
        with torch.autocast(frames.device.type, enabled=False):
            weighted, plain = self._errors(frames, shown, drawn)
            divergence = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum(dim=1)
            total = self._scale * weighted.mean() + divergence.clamp(min=self._kl_tolerance * self.vae.latent).mean()
            untold = torch.zeros_like(total)
            if self.moments is not None and self.reader is not None:
                untold = (self.reader(z) - self.moments(shown)).square().mean()
                total = total + self._moments_weight * self.moments.count * untold
        return VaeLossTerms(total, plain.detach().mean(), divergence.detach().mean(), untold.detach())
