"""An environment's pipeline: which stages, where, and with which settings."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from stages import collect, dream, evaluate, train_controller, train_dreamer, train_mdnrnn, train_vae
from stages.session import Session
from wm.artifacts import durable
from wm.artifacts.manifest import sha256_json
from wm.envs.registry import EnvConfig, find_env
from wm.errors import UsageProblem, WmError
from wm.pipeline.plan import Plan
from wm.pipeline.stage import Result
from wm.settings import (
    COMMANDS,
    STAGES_OF_AGENT,
    CollectSettings,
    ControllerSettings,
    CurriculumSettings,
    DreamerSettings,
    DreamSettings,
    EvaluateSettings,
    MdnRnnSettings,
    Settings,
    VaeSettings,
)
from wm.settings.sources import Sources, chosen_settings, typed_settings


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


OF_ROUNDS = ("imitate", "source_vae")  # settings that each round has of its own


@dataclass(frozen=True)
class Step:
    """A stage of an environment's pipeline: where, and with which settings."""

    stage: str
    session: Session
    settings: Settings
    round: int = 1

    def __str__(self) -> str:
        return f"{self.session.env} {self.stage}" + (f", round {self.round}" if self.round > 1 else "")

    @property
    def outputs(self) -> list[Path]:
        """The folders it writes."""
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

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that determines the artifacts; known before the first stage runs."""
        recipes = [
            {
                "stage": step.stage,
                "recipe": STAGES[step.stage].recipe,
                "settings": step.settings.result_settings(),
                "init_from": getattr(step.settings, "init_from", None),
                "episodes": getattr(step.settings, "episodes", None),
                "seed": step.session.seed,
            }
            for step in self.steps
        ]
        return sha256_json({"env": self.env, "steps": recipes, **self._sources()})

    def _sources(self) -> dict[str, str]:
        """Digests of the environment's own code; none if it cannot be built, which the first stage says."""
        try:
            return EnvConfig(self.env).code.sources
        except WmError:
            # Without its code the fingerprint is another one, and the first stage tells the reason.
            return {}

    @property
    def datasets(self) -> list[Path]:
        """The episodes of every round."""
        return [step.session.data_path for step in self.steps if step.stage == "collect"]

    @property
    def replays(self) -> list[Path]:
        """The replays of its Dreamers."""
        return [train_dreamer.replay_path(step.session) for step in self.steps if step.stage == "train-dreamer"]

    @property
    def folders(self) -> list[Path]:
        """Every folder on disk that belongs to it."""
        return [*self.datasets, *self.replays, *self.runs]

    @property
    def runs(self) -> list[Path]:
        """The run of every round."""
        return list(dict.fromkeys(step.session.run_path for step in self.steps if step.stage != "collect"))

    @property
    def reported(self) -> list[Path]:
        """The runs that are evaluated, or were meant to be."""
        return list(dict.fromkeys(step.session.run_path for step in self.steps if step.stage == "evaluate"))

    @property
    def has_inputs(self) -> bool:
        """Whether its stages can compare themselves with their inputs: episodes and latents were not removed."""
        if not self.datasets:
            return True
        return all(path.exists() for path in self.datasets) and all((run / "latents").exists() for run in self.runs)


def folder_bytes(path: Path) -> int:
    """Bytes in a folder; 0 if it does not exist."""
    return durable.folder_size(path) if path.is_dir() else 0


def pipelines_of(session: Session, settings: CurriculumSettings, sources: Sources) -> list[Pipeline]:
    """The pipeline of every environment. Raises UsageProblem for an unknown environment, and for a setting of a stage
    that is none of the agent's, before the first one starts.

    A later round has a run of its own, `runs/<Env>.round2`. It collects with the controller of the round before into
    `data/<Env>.round2.zarr`, and continues from its M and its C, with its V. The round of `retrain_round` trains all
    three anew: V has seen the frames of random play alone. Rounds of a policy gradient are short and many, so the last
    one alone is compared with the dream and evaluated.
    """
    for name in settings.names:
        find_env(name)
    stages = STAGES_OF_AGENT[settings.agent]
    for each in sources.assignments:
        if (each.command, each.name) == ("curriculum", "retrain_round") and settings.agent == "dreamer":
            raise UsageProblem("--set retrain_round is for V, M and C; leave it out, or give --agent vmc.")
        if each.name in OF_ROUNDS:
            raise UsageProblem(
                f"--set {each.command}.{each.name}: the curriculum says what a round continues from; leave it out. "
                "V, M and C begin anew in the round that --set retrain_round names."
            )
        if each.command not in ("curriculum", *stages):
            raise UsageProblem(
                f"--set {each.command}.{each.name.rstrip('_')} means nothing with --agent {settings.agent}, whose "
                f"stages are {', '.join(stages)}; leave it out."
            )
    pipelines = [Pipeline(env, _steps(session.for_env(env), settings, sources)) for env in settings.names]
    if not any(step.round > 1 for pipeline in pipelines for step in pipeline.steps):
        for each in sources.assignments:
            if each.later or each.name == "later_weight":
                name = f"{each.command}.later.{each.name}" if each.later else f"{each.command}.{each.name}"
                raise UsageProblem(
                    f"--set {name.rstrip('_')} means nothing in one round; give --rounds 2, or leave it out."
                )
    return pipelines


def _steps(session: Session, settings: CurriculumSettings, sources: Sources) -> list[Step]:
    if settings.agent == "dreamer":
        return _dreamer_steps(session, settings, sources)
    first = stage_settings(settings, sources, session.env)
    own, origin = sources.resolve("curriculum", CurriculumSettings, session.env)
    later = stage_settings(settings, sources, session.env, later=True)
    rounds, data, run = settings.rounds or own.rounds, session.data_path, session.run_path
    anew = own.retrain_round
    # A preset's may lie beyond the rounds that are given.
    if "retrain_round" in chosen_settings(origin) and anew not in (0, *range(2, rounds + 1)):
        way_out = (
            "expected a later one than the first, or 0" if rounds > 1 else "give --rounds 2 or more, or leave it out"
        )
        raise UsageProblem(f"retrain_round is {anew}, and {session.env}'s rounds are 1 to {max(rounds, 1)}; {way_out}.")
    steps = [Step(stage, session, first[stage]) for stage in _stages_of_round(first, rounds <= 1)]
    datasets = [data]
    for number in range(2, rounds + 1):
        previous = session
        datasets.append(data.with_name(f"{data.stem}.round{number}.zarr"))
        session = replace(previous, data=tuple(datasets), run=run.with_name(f"{run.name}.round{number}"))
        others = {"collect": replace(previous, data=(datasets[-1],)), "dream": replace(session, data=(data,))}
        again = _continued(later, previous.run_path)
        if number == anew:
            again |= _begun_anew(first, previous.run_path)
        steps += [
            Step(stage, others.get(stage, session), again[stage], number)
            for stage in _stages_of_round(later, number == rounds)
            if stage != "train-vae" or number == anew
        ]
    return steps


def _begun_anew(first: dict[str, Settings], previous: Path) -> dict[str, Settings]:
    """The settings of V, M and C in a round that trains them from new weights, as the first one does; C's begin by
    imitating the round before."""
    search = first["train-controller"]
    assert isinstance(search, ControllerSettings)
    if search.hidden and not search.policy_gradient:
        raise UsageProblem(
            f"retrain_round is given, and C has {search.hidden} hidden units; with --algo cma a linear C alone can "
            "imitate on a new V. Give --set train-controller.hidden=0 or --set train-controller.algo=ppo, or "
            "--set retrain_round=0."
        )
    return {
        "train-vae": first["train-vae"],
        "train-mdnrnn": first["train-mdnrnn"],
        "train-controller": replace(_continuing(search), init_from=str(previous), imitate=True),
    }


def _continuing(search: ControllerSettings) -> ControllerSettings:
    """The settings of a C that goes on from another one. A search by CMA-ES that continues has no restarts; it is
    whitened at its start, or not at all."""
    if search.policy_gradient:
        return search
    return replace(search, whiten_at="0" if search.whitened_from_start else "", restarts=1)


def _stages_of_round(settings: dict[str, Settings], last: bool) -> tuple[str, ...]:
    search = settings["train-controller"]
    assert isinstance(search, ControllerSettings)
    short = search.policy_gradient and not last
    return tuple(stage for stage in STAGES_OF_AGENT["vmc"] if not short or stage not in ("dream", "evaluate"))


def _dreamer_steps(session: Session, settings: CurriculumSettings, sources: Sources) -> list[Step]:
    train, origin = sources.resolve("train-dreamer", DreamerSettings, session.env)
    if settings.max_env_steps:
        train = replace(train, steps=settings.max_env_steps)
    train_dreamer.require_used(session, train, typed_settings(origin))
    dreams, origin = sources.resolve("dream", DreamSettings, session.env)
    dream.require_used_by_dreamer(dreams, typed_settings(origin))
    scores = sources.resolve("evaluate", EvaluateSettings, session.env)[0]
    of_stage = {
        "train-dreamer": train,
        "dream": replace(dreams, agent="dreamer"),
        "evaluate": replace(scores, agent="dreamer"),
    }
    return [Step(stage, session, of_stage[stage]) for stage in STAGES_OF_AGENT["dreamer"]]


def stage_settings(
    settings: CurriculumSettings, sources: Sources, env: str, later: bool = False
) -> dict[str, Settings]:
    """The settings of V, M and C's stages for an environment, in a `later` round or not. V trains on the episodes that
    the first round collects; the curriculum's limits replace those of the search."""
    resolved = {stage: sources.resolve(stage, COMMANDS[stage], env, later=later)[0] for stage in STAGES_OF_AGENT["vmc"]}
    collecting, vae, search = (resolved[stage] for stage in ("collect", "train-vae", "train-controller"))
    assert isinstance(collecting, CollectSettings)
    assert isinstance(vae, VaeSettings)
    assert isinstance(search, ControllerSettings)
    limits: dict[str, Any] = {"max_hours": settings.max_hours} | _step_limits(
        settings, search, collecting.action_repeat
    )
    return resolved | {
        "train-vae": replace(vae, episodes=vae.episodes or collecting.episodes),
        "train-controller": replace(search, **{name: value for name, value in limits.items() if value}),
    }


def _step_limits(settings: CurriculumSettings, search: ControllerSettings, action_repeat: int) -> dict[str, int]:
    """The limits on generations and on steps, by the search's settings; 0: the preset's. A generation of a policy
    gradient is an iteration, whose steps are known."""
    generations, env_steps = settings.max_generations, settings.max_env_steps
    if not search.policy_gradient:
        return {"max_generations": generations, "max_env_steps": env_steps}
    steps = generations * search.places * search.steps_per_place
    if search.in_ == "dream":
        return {"max_dream_steps": steps, "max_env_steps": env_steps}
    return {"max_env_steps": min(filter(None, (steps * action_repeat, env_steps)), default=0)}


def _continued(settings: dict[str, Settings], previous: Path) -> dict[str, Settings]:
    """The settings of a later round: C collects, and M and C continue from the run before. Of a policy gradient the
    best policy continues, but the latest collects: M must learn where its dreams misled it."""
    collecting, mdnrnn, search = (settings[stage] for stage in ("collect", "train-mdnrnn", "train-controller"))
    assert isinstance(collecting, CollectSettings)
    assert isinstance(mdnrnn, MdnRnnSettings)
    assert isinstance(search, ControllerSettings)
    return settings | {
        "collect": replace(collecting, policy="latest" if search.policy_gradient else "controller"),
        "train-mdnrnn": replace(mdnrnn, init_from=str(previous), source_vae=True),
        "train-controller": replace(_continuing(search), init_from=str(previous)),
    }
