"""Settings of `wm collect`."""

from dataclasses import dataclass

from wm.settings.base import Settings, setting


@dataclass(frozen=True, kw_only=True)
class CollectSettings(Settings):
    """`wm collect`: which episodes are played and how they are stored."""

    episodes: int = setting(50, "How many episodes the dataset should hold.", low=1, section="Episodes", result=False)
    policy: str = setting(
        "auto",
        "Policy that plays: auto is sticky for discrete actions and brownian for continuous ones.",
        choices=("auto", "random", "sticky", "brownian", "controller"),
        section="Episodes",
    )
    action_space: str = setting(
        "auto",
        "Action space, where the environment offers both.",
        choices=("auto", "discrete", "continuous"),
        section="Episodes",
    )
    size: int = setting(64, "Side of the stored square frames in pixels.", low=32, high=128, section="Frames")
    gray: bool = setting(False, "Store one gray channel instead of three colours.", section="Frames")
    observation: str = setting(
        "rgb",
        "What a frame shows: rgb; foreground (rgb minus a slowly adapting background); or motion (gray differences to "
        "the first frame at t, t-4 and t-8, as three channels).",
        choices=("rgb", "foreground", "motion"),
        section="Frames",
    )
    render: str = setting(
        "exact",
        "Renderer: exact draws gymnasium's pixels faster, fast is coarser, gymnasium is its own code.",
        choices=("exact", "fast", "gymnasium"),
        section="Frames",
    )
    action_repeat: int = setting(
        1,
        "Environment steps that each action is repeated for. Only the last frame of each is stored, and steps are "
        "counted in actions.",
        low=1,
        high=16,
    )
    max_steps: int = setting(0, "Truncate episodes after this many steps; 0: the environment's own limit.", low=0)
