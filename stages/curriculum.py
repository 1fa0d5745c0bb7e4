"""`wm curriculum`: the whole chain, one environment after the other. A plain list of stages: what is up to date is
not done again, so the same command continues after a kill."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from stages import collect, console, dream, evaluate, train_controller, train_mdnrnn, train_vae
from stages.options import Sources
from stages.session import Plan, Result, Session
from wm.envs.catalogue import find
from wm.errors import DiskProblem, MissingInput, Stopped, WmError
from wm.evolution.scores import Score
from wm.settings import COMMANDS, CurriculumSettings, Settings, VaeSettings

STAGES: dict[str, Callable[[Session, Any], Result]] = {
    "collect": collect.collect,
    "train-vae": train_vae.train_vae,
    "train-mdnrnn": train_mdnrnn.train_mdnrnn,
    "train-controller": train_controller.train_controller,
    "dream": dream.dream,
    "evaluate": evaluate.evaluate,
}
PLANS: dict[str, Callable[[Session, Any], Plan]] = {
    "collect": collect.plan,
    "train-vae": train_vae.plan,
    "train-mdnrnn": train_mdnrnn.plan,
    "train-controller": train_controller.plan,
    "dream": dream.plan,
    "evaluate": evaluate.plan,
}


@dataclass
class Verdict:
    """What came of one environment."""

    env: str
    results: list[Result]
    seconds: float
    failure: WmError | None = None

    def rows(self) -> list[list[str]]:
        """Its lines in the closing table: one for every round that was evaluated."""
        found: list[list[str]] = []
        wall = 0.0
        for result in self.results:
            wall += result.seconds
            if result.stage != "evaluate":
                continue
            score = result.metrics
            note = f"preview, n={score['episodes']}" if score["preview"] else f"n={score['episodes']}"
            found.append(
                [
                    self.env + (f", round {len(found) + 1}" if found else ""),
                    str(Score(score["random"]["mean"], score["random"]["ci95"], score["random"]["episodes"])),
                    str(Score(score["mean"], score["ci95"], score["episodes"])),
                    note,
                    f"{score['env_steps']:,}",
                    console.show_time(wall),
                ]
            )
            wall = 0.0
        if self.failure is not None:
            found.append([self.env, "-", "-", "failed", "-", console.show_time(self.seconds)])
        return found


def env_names(settings: CurriculumSettings) -> list[str]:
    """The environments in order, each one checked. Raises UsageProblem for an unknown one."""
    names = [name.strip() for name in settings.envs.split(",") if name.strip()]
    for name in names:
        find(name)
    return names


def stage_settings(sources: Sources, env: str) -> dict[str, Settings]:
    """The settings of every stage for an environment. V trains on the episodes that were collected."""
    chosen = {stage: sources.resolve(stage, COMMANDS[stage], env)[0] for stage in STAGES}
    vae, episodes = chosen["train-vae"], chosen["collect"].episodes  # type: ignore[attr-defined]
    assert isinstance(vae, VaeSettings)
    chosen["train-vae"] = replace(vae, episodes=vae.episodes or episodes)
    return chosen


@dataclass(frozen=True)
class Step:
    """A stage in an environment's chain: where, and with which settings."""

    stage: str
    session: Session
    settings: Settings
    round: int = 1

    def __str__(self) -> str:
        return f"{self.session.env} {self.stage}" + (f", round {self.round}" if self.round > 1 else "")


def steps_of(session: Session, env: str, sources: Sources, rounds: int) -> list[Step]:
    """The chain of an environment. A later round has a run of its own, `runs/<Env>.round2`: it collects with the
    controller of the round before into `data/<Env>.round2.zarr`, and goes on with the same V from its M and its C."""
    chosen = stage_settings(sources, env)
    here = session.for_env(env)
    data, folder = here.data_path, here.run_path
    found = [Step(stage, here, chosen[stage]) for stage in STAGES]
    datasets = [data]
    for number in range(2, rounds + 1):
        before = here
        datasets.append(data.with_name(f"{data.stem}.round{number}.zarr"))
        here = replace(before, data=tuple(datasets), run=folder.with_name(f"{folder.name}.round{number}"))
        settings = chosen | {"collect": changed(chosen["collect"], policy="controller")}
        for name in ("train-mdnrnn", "train-controller"):
            settings[name] = changed(chosen[name], from_=str(before.run_path))
        places = {"collect": replace(before, data=(datasets[-1],))}
        found += [Step(name, places.get(name, here), settings[name], number) for name in STAGES if name != "train-vae"]
    return found


def changed(settings: Settings, **values: Any) -> Settings:
    """The settings with other values; bounds are checked again."""
    return replace(settings, **values)


def plan(session: Session, settings: CurriculumSettings, sources: Sources) -> list[Plan]:
    """The stages whose inputs are there; the others can be planned once those have run."""
    found = []
    for env in env_names(settings):
        for step in steps_of(session, env, sources, settings.rounds):
            try:
                found.append(PLANS[step.stage](step.session, step.settings))
            except MissingInput:
                break
    return found


def curriculum(session: Session, settings: CurriculumSettings, sources: Sources) -> list[Verdict]:
    """Run every stage of every environment. One environment's failure is reported and the next one goes on; a full
    disk and a signal stop everything."""
    chains = {env: steps_of(session, env, sources, settings.rounds) for env in env_names(settings)}
    total, number = sum(map(len, chains.values())), 0
    verdicts = []
    for env, chain in chains.items():
        began = time.monotonic()
        verdict = Verdict(env, [], 0.0)
        for place, step in enumerate(chain, number + 1):
            label = f"[{place}/{total}] {step}"
            console.say(f"{label} ...")
            started = time.monotonic()
            try:
                result = STAGES[step.stage](step.session, step.settings)
            except (Stopped, DiskProblem):
                raise
            except WmError as error:
                verdict.failure = error
                console.say(f"{label}: failed: {error}")
                break
            took = "" if result.status == "up to date" else f" in {console.show_time(time.monotonic() - started)}"
            console.say(f"{label}: {result.status}{took}: {result.summary}")
            verdict.results.append(result)
        number += len(chain)
        verdict.seconds = time.monotonic() - began
        verdicts.append(verdict)
    return verdicts


HEADER = ["environment", "random policy", "our score", "episodes", "env steps", "wall time"]


def closing(verdicts: list[Verdict]) -> str:
    """The closing table, and where the pictures are."""
    lines = [console.table(HEADER, [row for verdict in verdicts for row in verdict.rows()])]
    lines.append("mean return ± half-width of the 95 % interval, test seeds, unmodified environments;")
    lines.append("wall time adds up all stages, of an interrupted one the last go")
    pictures = [picture for verdict in verdicts for result in verdict.results for picture in result.pictures]
    if pictures:
        lines.append("pictures:")
        lines += [f"  {picture}" for picture in pictures]
    return "\n".join(lines)
