"""An environment's chain: which stages, where, and with which settings."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from stages import collect, dream, evaluate, train_controller, train_dreamer, train_mdnrnn, train_vae
from stages.options import Sources
from stages.session import Session
from stages.stage import Plan, Result
from wm.artifacts.manifest import sha256_json
from wm.envs.registry import find_env
from wm.settings import COMMANDS, CURRICULA, ControllerSettings, CurriculumSettings, Settings, VaeSettings


class Stage(NamedTuple):
    """How to run a stage and how to plan it, the version of its recipe, and the artifacts it leaves in a run."""

    run: Callable[[Session, Any], Result]
    plan: Callable[[Session, Any], Plan]
    recipe: int
    artifacts: tuple[str, ...]


STAGES = {
    "collect": Stage(collect.collect, collect.plan, 0, ()),
    "train-vae": Stage(train_vae.train_vae, train_vae.plan, train_vae.RECIPE, ("vae",)),
    "train-mdnrnn": Stage(train_mdnrnn.train_mdnrnn, train_mdnrnn.plan, train_mdnrnn.RECIPE, ("latents", "mdnrnn")),
    "train-controller": Stage(
        train_controller.train_controller, train_controller.plan, train_controller.RECIPE, ("controller",)
    ),
    "dream": Stage(dream.dream, dream.plan, dream.RECIPE, ("dream",)),
    "evaluate": Stage(
        evaluate.evaluate, evaluate.plan, evaluate.RECIPE, ("evaluation/controller", "evaluation/random")
    ),
    "train-dreamer": Stage(train_dreamer.train_dreamer, train_dreamer.plan, train_dreamer.RECIPE, ("dreamer",)),
}
VMC = ("collect", "train-vae", "train-mdnrnn", "train-controller", "dream", "evaluate")
DREAMER = ("train-dreamer", "dream", "evaluate")


@dataclass(frozen=True)
class Step:
    """A stage in an environment's chain: where, and with which settings."""

    stage: str
    session: Session
    settings: Settings
    round: int = 1

    def __str__(self) -> str:
        return f"{self.session.env} {self.stage}" + (f", round {self.round}" if self.round > 1 else "")

    @property
    def places(self) -> list[Path]:
        """What it writes."""
        if self.stage == "collect":
            return [self.session.data_path]
        if self.stage == "train-dreamer":
            return [self.session.run_path / "dreamer", train_dreamer.replay_path(self.session)]
        names = STAGES[self.stage].artifacts
        if getattr(self.settings, "agent", "") == "dreamer":
            names = {"dream": ("dream-dreamer",), "evaluate": ("evaluation/dreamer", "evaluation/random")}[self.stage]
        return [self.session.run_path / name for name in names]


@dataclass(frozen=True)
class Pipeline:
    """All steps of an environment."""

    env: str
    steps: list[Step]

    @property
    def fingerprint(self) -> str:
        """Of everything that decides what comes of it, known before anything is made."""
        decided = [
            {
                "stage": step.stage,
                "recipe": STAGES[step.stage].recipe,
                "settings": step.settings.result_settings(),
                "from": getattr(step.settings, "init_from", ""),
                "episodes": getattr(step.settings, "episodes", None),
                "seed": step.session.seed,
            }
            for step in self.steps
        ]
        return sha256_json({"env": self.env, "steps": decided})

    @property
    def datasets(self) -> list[Path]:
        """The episodes of every round."""
        return [step.session.data_path for step in self.steps if step.stage == "collect"]

    @property
    def replays(self) -> list[Path]:
        """What Dreamers wrote behind their play."""
        return [train_dreamer.replay_path(step.session) for step in self.steps if step.stage == "train-dreamer"]

    @property
    def places(self) -> list[Path]:
        """Everything that is on disk of it."""
        return [*self.datasets, *self.replays, *self.runs]

    @property
    def runs(self) -> list[Path]:
        """The run of every round."""
        return list(dict.fromkeys(step.session.run_path for step in self.steps if step.stage != "collect"))


def env_names(settings: CurriculumSettings) -> list[str]:
    """The environments in order, each one checked. Raises UsageProblem for an unknown one."""
    names = CURRICULA.get(settings.envs) or [name.strip() for name in settings.envs.split(",") if name.strip()]
    for name in names:
        find_env(name)
    return list(dict.fromkeys(names))


def pipelines_of(session: Session, settings: CurriculumSettings, sources: Sources) -> list[Pipeline]:
    """The chain of every environment. A later round has a run of its own, `runs/<Env>.round2`: it collects with the
    controller of the round before into `data/<Env>.round2.zarr`, and continues from its M and its C, with its V."""
    return [Pipeline(env, _steps(session.for_env(env), settings, sources)) for env in env_names(settings)]


def _steps(here: Session, settings: CurriculumSettings, sources: Sources) -> list[Step]:
    chosen = stage_settings(sources, here.env)
    if settings.agent == "dreamer":
        if settings.max_env_steps:
            chosen["train-dreamer"] = replace(chosen["train-dreamer"], steps=settings.max_env_steps)  # type: ignore[call-arg]
        for name in ("dream", "evaluate"):
            chosen[name] = replace(chosen[name], agent="dreamer")  # type: ignore[call-arg]
        return [Step(stage, here, chosen[stage]) for stage in DREAMER]
    budget = {"max_generations": settings.max_generations, "max_hours": settings.max_hours}
    budget |= {"max_env_steps": settings.max_env_steps}
    given = {name: value for name, value in budget.items() if value}
    chosen["train-controller"] = replace(chosen["train-controller"], **given)
    data, folder = here.data_path, here.run_path
    found = [Step(stage, here, chosen[stage]) for stage in VMC]
    datasets = [data]
    own = sources.resolve("curriculum", CurriculumSettings, here.env)[0]
    stages = [name for name in VMC if name != "train-vae"]
    again = stage_settings(sources, here.env, later=True)
    again["collect"] = replace(again["collect"], policy="controller")  # type: ignore[call-arg]
    again["train-controller"] = replace(again["train-controller"], **given)
    for number in range(2, (settings.rounds or own.rounds) + 1):
        before = here
        datasets.append(data.with_name(f"{data.stem}.round{number}.zarr"))
        here = replace(before, data=tuple(datasets), run=folder.with_name(f"{folder.name}.round{number}"))
        last: dict[str, Any] = {"init_from": str(before.run_path)}
        again["train-mdnrnn"] = replace(again["train-mdnrnn"], **last)
        search = again["train-controller"]
        assert isinstance(search, ControllerSettings)
        whiten_at = "0" if search.whitened_from_start else ""
        again["train-controller"] = replace(search, **last, whiten_at=whiten_at, restarts=1)
        places = {"collect": replace(before, data=(datasets[-1],))}
        found += [Step(name, places.get(name, here), again[name], number) for name in stages]
    return found


def stage_settings(sources: Sources, env: str, later: bool = False) -> dict[str, Settings]:
    """The settings of every stage for an environment, in a `later` round or not. V trains on the episodes that were
    collected."""
    chosen = {stage: sources.resolve(stage, COMMANDS[stage], env, later=later)[0] for stage in STAGES}
    vae, episodes = chosen["train-vae"], chosen["collect"].episodes  # type: ignore[attr-defined]
    assert isinstance(vae, VaeSettings)
    chosen["train-vae"] = replace(vae, episodes=vae.episodes or episodes)
    return chosen
