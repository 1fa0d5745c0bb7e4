"""Settings of `wm curriculum`."""

from dataclasses import dataclass

from wm.errors import UsageProblem
from wm.settings.base import Settings, setting

CURRICULA = {
    "full": ("Pong", "LunarLander", "Breakout", "CarRacing"),
    "classic": ("Pong", "Breakout", "CartPole", "Acrobot"),
}
STAGES_OF_AGENT = {
    "vmc": ("collect", "train-vae", "train-mdnrnn", "train-controller", "dream", "evaluate"),
    "dreamer": ("train-dreamer", "dream", "evaluate"),
}


@dataclass(frozen=True, kw_only=True)
class CurriculumSettings(Settings):
    """`wm curriculum`: the whole pipeline, one environment after the other."""

    envs: str = setting(
        "full",
        f"Environments, separated by commas; full: {', '.join(CURRICULA['full'])}; classic: "
        f"{', '.join(CURRICULA['classic'])}.",
        section="Curriculum",
        result=False,
    )
    agent: str = setting(
        "vmc",
        "Agent: V, M and C, or a Dreamer.",
        choices=("vmc", "dreamer"),
        section="Curriculum",
        result=False,
    )
    rounds: int = setting(
        0,
        "Rounds. Later ones collect with C and continue M and C. 0: the preset's.",
        low=0,
        high=99,
        section="Curriculum",
        result=False,
    )
    # 0: a preset names the round. CarRacing, LunarLander and Pong gained most from it (2026-11-28).
    retrain_round: int = setting(
        0,
        "Round that trains V anew, on the episodes of all rounds, and M and C with it; 0: none.",
        low=0,
        high=99,
        result=False,
    )
    # In the memory of one. With 2 the quick preset's four environments took 17 minutes instead of 24 (2026-11-22).
    # That was before V and M trained on all cores (2026-11-27), and has not been measured since.
    jobs: int = setting(1, "Environments at a time.", low=1, high=8, section="Curriculum", result=False)
    keep: str = setting(
        "all",
        "What stays at the end: data: no latents; artifacts: no episodes either.",
        choices=("all", "data", "artifacts"),
        section="Curriculum",
        result=False,
    )
    fail_fast: bool = setting(False, "Stop at the first environment that fails.", section="Curriculum", result=False)
    max_generations: int = setting(0, "Most iterations; 0: the preset's.", low=0, section="Limits", result=False)
    max_hours: float = setting(0.0, "Hours of a search; 0: the preset's.", low=0, section="Limits", result=False)
    max_env_steps: int = setting(
        0,
        "Real steps of a Dreamer, or of a search before its last validation; 0: the preset's.",
        low=0,
        section="Limits",
        result=False,
    )

    @property
    def names(self) -> list[str]:
        """The environments in order, each once."""
        names = CURRICULA.get(self.envs) or [name.strip() for name in self.envs.split(",") if name.strip()]
        return list(dict.fromkeys(names))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.names:
            raise UsageProblem(f"--envs is {self.envs!r}; expected names of environments, such as Pong,CarRacing.")
        vmc_only = {
            "--rounds": self.rounds > 1,
            "--max-generations": self.max_generations > 0,
            "--max-hours": self.max_hours > 0,
        }
        if self.agent == "dreamer" and any(vmc_only.values()):
            option = next(name for name, wrong in vmc_only.items() if wrong)
            raise UsageProblem(f"{option} is for V, M and C; a Dreamer has --max-env-steps. Leave one of them out.")
