"""Settings of `wm train-mdnrnn`."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from wm.errors import UsageProblem
from wm.settings.base import LONGEST, MOST_IN_BATCH, option_name, setting
from wm.settings.gradient import GradientSettings

_OF_NETWORK = {
    "paper": ("mixtures", "seq_len", "noise_anneal", "end_weight"),
    "rollout": ("units", "warm_up", "rollout_steps", "event_share", "dreamt_rewards"),
}


@dataclass(frozen=True, kw_only=True)
class MdnRnnSettings(GradientSettings):
    """`wm train-mdnrnn`: M, which predicts latents, rewards and the ends of episodes."""

    network: str = setting(
        "paper",
        "paper: LSTM and mixtures of Gaussians, trained on real latents; rollout: trained on its own predictions, many "
        "steps in a row.",
        choices=("paper", "rollout"),
        section="Model",
    )
    # The paper's for CarRacing.
    hidden: int = setting(
        256,
        "LSTM units; the rollout network without any sees the last three latents and two actions.",
        low=0,
        high=8192,
        section="Model",
    )
    # 768 units learn no more in the same time, 384 two layers do best (2026-11-28).
    units: int = setting(384, "Units of the rollout network's two layers.", low=1, high=8192)
    # The paper's.
    mixtures: int = setting(5, "Gaussians per latent dimension.", low=1, high=64, section="Model")
    # Windows extend past an episode's end, so that M cannot learn to count to 64 (2026-11-23).
    seq_len: int = setting(
        64, "Steps per training window of the paper's network.", low=2, high=LONGEST, section="Training"
    )
    # A step of the paper's network; the rollout network has 192 in presets.
    batch: int = setting(32, "Windows per batch.", low=1, high=MOST_IN_BATCH, section="Training")
    # With 30 LunarLander's C was no better (2026-11-27), with 5 Pong's stayed at -18 (2026-11-28).
    rollout_steps: int = setting(
        15, "Steps that the rollout network predicts from its own predictions.", low=1, high=LONGEST
    )
    # With 2 instead of 8 the errors 15 steps ahead are alike (2026-11-26); Pong's preset has 2 since 2026-11-28.
    warm_up: int = setting(8, "Real steps before each rollout.", low=0, high=LONGEST)
    # A twelfth: with none, Pong's dreams had no won points; with a quarter they did not help (2026-11-26).
    event_share: float = setting(
        0.08,
        "Share of the rollouts in which a rare kind of event is to happen, at most four times as often as it does. An "
        "event is a reward of a sign, or an end.",
        low=0,
        high=0.3,
    )
    dreamt_rewards: bool = setting(
        False,
        "Rewards are learned on rollouts in every second window, and on real transitions in the others; without, on "
        "real transitions alone.",
        newer=True,
    )
    # Three: later episodes are of the policy (4fa7a43). No other weight was compared.
    later_weight: float = setting(
        3.0,
        "With several --data and no mixture, how often a step of those after the first counts: a policy's own episodes "
        "matter more than random ones.",
        low=1e-3,
    )
    # The last 0.4: C and dreams give M the mean z. No other share is on record.
    noise_anneal: float = setting(
        0.4,
        "Last share of the steps over which the noise of the input z is annealed to 0; C and dreams give M the mean "
        "z. 0: no annealing.",
        low=0,
        high=1,
    )
    # The paper's code weighs ends by 10 too; dreams divide it out again.
    end_weight: float = setting(10.0, "Weight of the rare ends of episodes in the end head's loss.", low=1.0)
    source_vae: bool = setting(
        False,
        "With --init-from, take that run's V, even in place of this run's, which moves to the archive.",
        result=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source_vae and not self.init_from:
            raise UsageProblem("--set source_vae=true takes the V of an earlier run; add --init-from, or leave it out.")
        if self.network == "paper" and not self.hidden:
            raise UsageProblem("--hidden is 0; expected at least 1 unit, or --network rollout.")
        for network, names in _OF_NETWORK.items():
            for item in dataclasses.fields(self):
                if item.name in names and network != self.network and getattr(self, item.name) != item.default:
                    name = option_name(item) if item.metadata["section"] else f"--set {item.name}"
                    raise UsageProblem(
                        f"{name} is {getattr(self, item.name)}, a setting of --network {network}; leave it out, or "
                        f"give --network {network} instead of {self.network}."
                    )

    @property
    def context(self) -> int | None:
        """Real steps before the rollout in a window; None for the paper's network, whose windows have no rollouts."""
        return None if self.network == "paper" else self.warm_up

    def result_settings(self) -> dict[str, Any]:
        """The settings that enter a fingerprint: those of this network."""
        others = {name for network, names in _OF_NETWORK.items() if network != self.network for name in names}
        return {name: value for name, value in super().result_settings().items() if name not in others}
