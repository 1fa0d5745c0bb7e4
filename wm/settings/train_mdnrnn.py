"""Settings of `wm train-mdnrnn`."""

from dataclasses import dataclass

from wm.settings.base import setting
from wm.settings.gradient import GradientSettings


@dataclass(frozen=True, kw_only=True)
class MdnRnnSettings(GradientSettings):
    """`wm train-mdnrnn`: an LSTM with a mixture density head, and heads for reward and end of episode."""

    hidden: int = setting(256, "LSTM units.", low=1, high=8192, section="Model")
    mixtures: int = setting(5, "Gaussians per latent dimension.", low=1, high=64, section="Model")
    seq_len: int = setting(64, "Steps per training window.", low=2, section="Training")
    batch: int = setting(32, "Windows per batch.", low=1, section="Training")
    noise_anneal: float = setting(
        0.4,
        "Last share of the steps over which the noise of the input z is annealed to 0; C and dreams give M the mean "
        "z. 0: no annealing.",
        low=0,
        high=1,
    )
    end_weight: float = setting(10.0, "Weight of the rare ends of episodes in the end head's loss.", low=1.0)
