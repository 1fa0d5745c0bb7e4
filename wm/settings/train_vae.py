"""Settings of `wm train-vae`."""

from dataclasses import dataclass

from wm.settings.base import MOST_IN_BATCH, setting
from wm.settings.gradient import GradientSettings


@dataclass(frozen=True, kw_only=True)
class VaeSettings(GradientSettings):
    """`wm train-vae`: the VAE and its loss."""

    # The paper's for CarRacing. With more, C has more noise; with 12 a linear reading of Pong's ball fails
    # (2026-11-24).
    latent: int = setting(32, "Number of latent dimensions.", low=1, high=1024, section="Model")
    network: str = setting(
        "small",
        "small takes less than a third of the paper's time per image; attentive also encodes the orientation of small "
        "objects; paper is the paper's.",
        choices=("small", "attentive", "paper"),
        section="Model",
    )
    episodes: int = setting(0, "Train on the first N episodes; 0: all.", low=0, section="Training", result=False)
    # Presets have 600 to 4,000; the paper's million.
    steps: int = setting(6000, "Training steps.", low=1, section="Training")
    # Ha & Schmidhuber (2018) have 100.
    batch: int = setting(64, "Frames per batch.", low=1, high=MOST_IN_BATCH, section="Training")
    # In nats, one value serves every game (2026-11-21); 400 gives less noise where a small thing moves alone
    # (2026-11-22).
    reconstruction_nats: float = setting(
        3000.0,
        "Weight of the reconstruction: nats that always predicting the mean image costs; 0: the plain summed squared "
        "error, as in the paper.",
        low=0,
    )
    # A ball of one pixel is a thousandth of a frame's error. Weighting alone brings Pong's ball to R2 0.8 (2026-11-21).
    pixel_weighting: float = setting(
        0.5,
        "Exponent by which colours that are rare at a place weigh more; 0: all alike, as in the paper.",
        low=0,
        high=2,
    )
    # The one change that brought Pong's ball above R2 0.9 (2026-11-21).
    position_targets: float = setting(
        100.0,
        "Weight (nats) of the auxiliary loss that makes positions linearly decodable from z; 0: none, as in the paper.",
        low=0,
    )
    # With attention alone LunarLander's angle has R2 0.00, with 1 cosine 0.90 (2026-11-21); others have no tilts.
    orientation_targets: int = setting(
        0, "Cosines per axis of the auxiliary targets of orientation; 0: none.", low=0, high=4
    )
    position_basis: str = setting(
        "cosines",
        "Basis of the position targets: cosines, or polynomials, of which one object on an empty ground needs fewer.",
        choices=("cosines", "polynomials"),
    )
    # The loss is divided by reconstruction_nats before, so that one value serves all of them.
    clip: float = setting(20.0, "Largest gradient norm, in units of reconstruction_nats.", low=1e-6)
    # The paper's.
    kl_tolerance: float = setting(0.5, "Free nats per latent dimension before the KL term counts.", low=0.0)
    ram: str = setting("auto", "Memory for decoded frames, such as 2GB; auto: a quarter of what is free.", result=False)
    # 0: what a probe needs is an environment's; below 0.9 there is a warning.
    require_probe: float = setting(
        0.0,
        "Refuse a V from whose sampled z a linear probe decodes a label with less than this R2; 0: only warn below "
        "0.9.",
        low=0,
        high=1,
        result=False,
    )
