"""The sizes of V, as plain values."""

from dataclasses import dataclass
from typing import Any

from wm.models.vae.networks import Vae, build


@dataclass(frozen=True)
class VaeConfig:
    """The sizes of V, and the environment whose frames it encodes."""

    network: str
    size: int
    channels: int
    latent: int
    env: dict[str, Any]

    def build(self) -> Vae:
        """V with initial weights."""
        return build(self.network, self.size, self.channels, self.latent)
