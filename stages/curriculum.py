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

    def row(self) -> list[str]:
        """Its line in the closing table."""
        if self.failure is not None:
            return [self.env, "-", "-", "failed", "-", console.show_time(self.seconds)]
        score = self.results[-1].metrics
        note = f"preview, n={score['episodes']}" if score["preview"] else f"n={score['episodes']}"
        wall = sum(result.seconds for result in self.results)
        return [
            self.env,
            str(Score(score["random"]["mean"], score["random"]["ci95"], score["random"]["episodes"])),
            str(Score(score["mean"], score["ci95"], score["episodes"])),
            note,
            f"{score['env_steps']:,}",
            console.show_time(wall),
        ]


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


def plan(session: Session, settings: CurriculumSettings, sources: Sources) -> list[Plan]:
    """The stages whose inputs are there; the others can be planned once those have run."""
    found = []
    for env in env_names(settings):
        for stage, chosen in stage_settings(sources, env).items():
            try:
                found.append(PLANS[stage](session.for_env(env), chosen))
            except MissingInput:
                break
    return found


def curriculum(session: Session, settings: CurriculumSettings, sources: Sources) -> list[Verdict]:
    """Run every stage of every environment. One environment's failure is reported and the next one goes on; a full
    disk and a signal stop everything."""
    names = env_names(settings)
    chosen = {env: stage_settings(sources, env) for env in names}
    verdicts = []
    for place, env in enumerate(names):
        began = time.monotonic()
        verdict = Verdict(env, [], 0.0)
        for number, (stage, function) in enumerate(STAGES.items()):
            label = f"[{place * len(STAGES) + number + 1}/{len(names) * len(STAGES)}] {env} {stage}"
            console.say(f"{label} ...")
            started = time.monotonic()
            try:
                result = function(session.for_env(env), chosen[env][stage])
            except (Stopped, DiskProblem):
                raise
            except WmError as error:
                verdict.failure = error
                console.say(f"{label}: failed: {error}")
                break
            took = "" if result.status == "up to date" else f" in {console.show_time(time.monotonic() - started)}"
            console.say(f"{label}: {result.status}{took}: {result.summary}")
            verdict.results.append(result)
        verdict.seconds = time.monotonic() - began
        verdicts.append(verdict)
    return verdicts


HEADER = ["environment", "random policy", "our score", "episodes", "env steps", "wall time"]


def closing(verdicts: list[Verdict]) -> str:
    """The closing table, and where the pictures are."""
    lines = [console.table(HEADER, [verdict.row() for verdict in verdicts])]
    lines.append("mean return ± half-width of the 95 % interval, test seeds, unmodified environments;")
    lines.append("wall time adds up all stages, of an interrupted one the last go")
    pictures = [picture for verdict in verdicts for result in verdict.results for picture in result.pictures]
    if pictures:
        lines.append("pictures:")
        lines += [f"  {picture}" for picture in pictures]
    return "\n".join(lines)
