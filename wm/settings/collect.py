"""Settings of `wm collect`."""

from dataclasses import dataclass

from wm.errors import UsageProblem
from wm.settings.base import Settings, check_mask, setting

# Adopted with rounds (4fa7a43). With 0.2 Pong's dreams were no better (2026-11-28); no other share was compared.
RANDOM_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class CollectSettings(Settings):
    """`wm collect`: which episodes are played and how they are stored."""

    # 50 are enough for V and M of Pong; presets ask for more where episodes are short.
    episodes: int = setting(50, "Episodes of the dataset.", low=1, section="Episodes", result=False)
    policy: str = setting(
        "auto",
        "auto: sticky, or brownian for a box; latest: C as ppo left it.",
        choices=("auto", "random", "sticky", "brownian", "controller", "latest"),
        section="Episodes",
    )
    random_share: float = setting(
        RANDOM_SHARE,
        "Share of steps in which a controller holds a random action, so that M learns what C does not do.",
        low=0,
        high=1,
    )
    action_space: str = setting(
        "auto",
        "Actions, where the environment has both.",
        choices=("auto", "discrete", "continuous"),
        section="Episodes",
    )
    # 64 as in Ha & Schmidhuber (2018); V's networks take 32 to 128.
    size: int = setting(64, "Side of the square frames in pixels.", low=32, high=128, section="Frames")
    gray: bool = setting(False, "Store one gray channel.", section="Frames")
    observation: str = setting(
        "rgb",
        "foreground: rgb minus a slow background; motion: gray differences to the first frame.",
        choices=("rgb", "foreground", "motion"),
        section="Frames",
    )
    mask: str = setting(
        "none",
        "What frames hide. flicker: half of the frames; 12-88: the rows between these percentages of the height.",
    )
    render: str = setting(
        "exact",
        "exact: gymnasium's pixels; fast: coarser.",
        choices=("exact", "fast", "gymnasium"),
        section="Frames",
    )
    frames: str = setting(
        "auto",
        "auto: observations, where they are images.",
        choices=("auto", "observation", "render"),
        section="Frames",
    )
    # Steps get cheaper and learning does not: CarRacing by CMA-ES returned 615 with 3 and 698 with 1 (2026-11-23).
    action_repeat: int = setting(
        1,
        "Environment steps per action. Only the last frame of each is stored, and steps are counted in actions.",
        low=1,
        high=16,
    )
    # 0, because the stages find out themselves whether instances disturb each other.
    envs_per_process: int = setting(
        0,
        "Environments that a process of later stages steps in turn; 0: 8, or 1 where instances share state.",
        low=0,
        high=8,
    )
    max_steps: int = setting(
        0,
        "Truncate episodes after this many steps; 0: the environment's own limit. Later stages keep it for an "
        "environment without one.",
        low=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mask(self.mask)

    @property
    def by_controller(self) -> bool:
        """Whether a trained C plays."""
        return self.policy in ("controller", "latest")

    def require_own(self) -> None:
        """Raise UsageProblem for a setting that means nothing to the policy. In later rounds a controller plays,
        whatever the policy of the first."""
        if not self.by_controller and self.random_share != RANDOM_SHARE:
            raise UsageProblem(
                f"--set random_share is {self.random_share:g}, but --policy {self.policy} is no controller; leave it "
                "out, or give --policy controller."
            )
