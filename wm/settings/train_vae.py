"""Settings of `wm train-vae`."""

from dataclasses import dataclass

from wm.settings.base import MOST_IN_BATCH, setting
from wm.settings.gradient import GradientSettings


@dataclass(frozen=True, kw_only=True)
class VaeSettings(GradientSettings):
    """`wm train-vae`: the VAE and its loss."""

    latent: int = setting(32, "Number of latent dimensions.", low=1, high=1024, section="Model")
    network: str = setting(
        "small",
        "small takes less than a third of the paper's time per image; attentive also encodes the orientation of small "
        "objects; paper is the paper's.",
        choices=("small", "attentive", "paper"),
        section="Model",
    )
    episodes: int = setting(0, "Train on the first N episodes; 0: all.", low=0, section="Training", result=False)
    steps: int = setting(6000, "Training steps.", low=1, section="Training")
    batch: int = setting(64, "Frames per batch.", low=1, high=MOST_IN_BATCH, section="Training")
    reconstruction_nats: float = setting(
        3000.0,
        "Weight of the reconstruction: nats that always predicting the mean image costs; 0: the plain summed squared "
        "error, as in the paper.",
        low=0,
    )
    pixel_weighting: float = setting(
        0.5,
        "Exponent by which colours that are rare at a place weigh more; 0: all alike, as in the paper.",
        low=0,
        high=2,
    )
    position_targets: float = setting(
        100.0,
        "Weight (nats) of the auxiliary loss that makes positions linearly decodable from z; 0: none, as in the paper.",
        low=0,
    )
    orientation_targets: int = setting(
        0, "Cosines per axis of the auxiliary targets of orientation; 0: none.", low=0, high=4
    )
    position_basis: str = setting(
        "cosines",
        "Basis of the position targets: cosines, or polynomials, of which one object on an empty ground needs fewer.",
        choices=("cosines", "polynomials"),
    )
    clip: float = setting(20.0, "Largest gradient norm, in units of reconstruction_nats.", low=1e-6)
    kl_tolerance: float = setting(0.5, "Free nats per latent dimension before the KL term counts.", low=0.0)
    ram: str = setting("auto", "Memory for decoded frames, such as 2GB; auto: a quarter of what is free.", result=False)
    require_probe: float = setting(
        0.0,
        "Refuse a V from whose sampled z a linear probe decodes a label with less than this R2; 0: only warn below "
        "0.9.",
        low=0,
        high=1,
        result=False,
    )
