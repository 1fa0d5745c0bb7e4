"""Settings of `wm curriculum`."""

from dataclasses import dataclass

from wm.errors import UsageProblem
from wm.settings.base import Settings, setting

CURRICULA = {
    "full": ("Pong", "LunarLander", "Breakout", "CarRacing"),
    "classic": ("Pong", "Breakout", "CartPole", "Acrobot"),
}


@dataclass(frozen=True, kw_only=True)
class CurriculumSettings(Settings):
    """`wm curriculum`: the whole pipeline, one environment after the other."""

    envs: str = setting(
        "full",
        f"Environments, separated by commas, or a list: full ({', '.join(CURRICULA['full'])}) or classic "
        f"({', '.join(CURRICULA['classic'])}).",
        section="Curriculum",
        result=False,
    )
    agent: str = setting(
        "vmc",
        "vmc trains V, M and C; dreamer a Dreamer.",
        choices=("vmc", "dreamer"),
        section="Curriculum",
        result=False,
    )
    rounds: int = setting(
        0,
        "In each round after the first, collect with the controller, train M on all episodes, and continue C; 0: the "
        "preset's number.",
        low=0,
        high=9,
        section="Curriculum",
        result=False,
    )
    jobs: int = setting(
        1, "Environments at a time, each on its share of the cores.", low=1, high=8, section="Curriculum", result=False
    )
    keep: str = setting(
        "all",
        "What remains of a finished environment: all; data (latents are removed); artifacts (episodes and latents are "
        "removed).",
        choices=("data", "artifacts", "all"),
        section="Curriculum",
        result=False,
    )
    strict: bool = setting(False, "Stop at the first environment that fails.", section="Curriculum", result=False)
    max_generations: int = setting(
        0, "End each search after this many generations; 0: the preset's.", low=0, section="Limits", result=False
    )
    max_hours: float = setting(
        0.0, "End each search after this time; 0: the preset's.", low=0, section="Limits", result=False
    )
    max_env_steps: int = setting(
        0, "End each search after this many real steps; 0: the preset's.", low=0, section="Limits", result=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        vmc_only = {
            "--rounds": self.rounds > 1,
            "--max-generations": self.max_generations > 0,
            "--max-hours": self.max_hours > 0,
        }
        if self.agent == "dreamer" and any(vmc_only.values()):
            given = next(name for name, wrong in vmc_only.items() if wrong)
            raise UsageProblem(f"{given} is for V, M and C; a Dreamer has --max-env-steps. Leave one of them out.")
