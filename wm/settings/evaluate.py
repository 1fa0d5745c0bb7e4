"""Settings of `wm evaluate`."""

from dataclasses import dataclass

from wm.settings.base import MOST_EPISODES, Settings, setting


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(Settings):
    """`wm evaluate`: scores on test seeds in the unmodified environment."""

    # What a quoted score needs (CONTRIBUTING.md). Six games of Pong had validated at 5.2, a hundred returned -5.4
    # (2026-11-26).
    episodes: int = setting(
        100, "Test episodes; fewer than 100 give a preview.", low=2, high=MOST_EPISODES, section="Evaluation"
    )
    agent: str = setting("controller", "Name of the controller or Dreamer that plays, or random.", section="Evaluation")
    record_video: int = setting(
        0, "Film the first N test episodes: GIF, and MP4 where imageio is installed.", low=0,
        section="Evaluation", result=False,
    )  # fmt: skip
    max_steps: int = setting(
        0, "Truncate test episodes after this many steps; 0: the dataset's or the environment's own limit.", low=0,
        newer=True,
    )  # fmt: skip
    sticky_actions: bool = setting(
        True, "Atari: actions are repeated by chance, 25 %; without, episodes begin with up to 30 no-ops.", newer=True
    )
    visualize: bool = setting(False, "Show the first test episode in a window.", section="Evaluation", result=False)
