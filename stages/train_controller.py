"""`wm train-controller`: V + M -> C, evolved in the real environment or in the dream."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stages import console
from stages.candidates import Evaluation
from stages.players import Player
from stages.session import Plan, Result, Session, made, stage_name, up_to_date
from stages.trained import SHAPE, TrainedMdnRnn, TrainedVae, controller_for, load_pair
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Run
from wm.evolution.scores import Score
from wm.evolution.search import Search, digest, replay
from wm.models.controller import pick_head
from wm.report.curves import Curve, draw
from wm.settings import ControllerSettings
from wm.training import weights

RECIPE = 1
LOG = "generations.jsonl"


@dataclass
class Progress:
    """What has been logged so far, and the best validated mean."""

    generations: list[dict[str, Any]] = field(default_factory=list)
    env_steps: int = 0
    best: NDArray[np.float32] | None = None
    best_score: float = -np.inf
    best_generation: int = 0

    def add(self, line: dict[str, Any], mean: NDArray[np.float32]) -> None:
        """Take a logged generation; `mean` is the distribution's after it."""
        self.generations.append(line)
        self.env_steps += line["env_steps"]
        if "validation" in line and (score := float(np.mean(line["validation"]))) > self.best_score:
            self.best, self.best_score, self.best_generation = mean, score, line["generation"]


def _run(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> Run:
    inputs = {"vae": vae.artifact.fingerprint, "mdnrnn": mdnrnn.artifact.fingerprint}
    name = stage_name(session, "controller")
    return session.make_run(name, "controller", RECIPE, settings.that_change_results(), inputs)


def _player(settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> Player:
    head = pick_head(settings.head, mdnrnn.space, vae.env.spec().head)
    fingerprint = vae.artifact.fingerprint + mdnrnn.artifact.fingerprint
    return Player(vae.env, vae.artifact.folder, mdnrnn.artifact.folder, head, fingerprint)


def plan(session: Session, settings: ControllerSettings) -> Plan:
    """What `train_controller` would do. Episodes differ in length, so the time is a range."""
    vae, mdnrnn = load_pair(session)
    run = _run(session, settings, vae, mdnrnn)
    controller = controller_for(mdnrnn, _player(settings, vae, mdnrnn).head, vae.env)
    workers = session.open_workers().count
    longest = settings.max_steps or vae.env.spec().rows_per_episode
    steps = settings.max_generations * settings.popsize * settings.episodes_per_eval * longest
    validations = settings.max_generations // settings.validate_every + 1
    steps_real = validations * settings.validation_episodes * vae.env.spec().rows_per_episode
    done = run.current() is not None
    what = "up to date" if done else f"{settings.max_generations} generations of {settings.popsize} ({settings.in_})"
    if not done and (why := run.why_stale()):
        what += f" ({why})"
    steps = steps_real + (0 if settings.in_ == "dream" else steps)
    span = (0.0, 0.0) if done else (steps / 1500 / workers / 3, steps / 150 / workers)
    return Plan("train-controller", run.folder, what, controller.parameters * 8 + 200_000, workers * 450_000_000, span)


def train_controller(session: Session, settings: ControllerSettings) -> Result:
    """Evolve C; validate the distribution's mean every few generations; publish the best mean by validation.

    Killed anywhere, the log of fitness values is replayed and the same candidates follow.
    """
    began = time.monotonic()
    vae, mdnrnn = load_pair(session)
    run = _run(session, settings, vae, mdnrnn)
    if (current := run.current()) is not None:
        return up_to_date("train-controller", current, _summary(current))
    session.budget(run.folder).require(2_000_000, 0, "evolving C")
    player = _player(settings, vae, mdnrnn)
    controller = controller_for(mdnrnn, player.head, player.env)
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("train-controller", builder.restored, _summary(builder.restored), "restored")
        search = Search(controller.parameters, settings.popsize, settings.sigma, session.seed)
        with session.open_workers() as workers:
            evaluation = Evaluation(session, settings, player, workers, mdnrnn)
            done = _evolve(session, settings, search, evaluation, builder.folder)
        assert done.best is not None
        shape = {
            "inputs": controller.inputs,
            "head": controller.head,
            "ordered": list(controller.ordered) if controller.ordered else None,
            "action_space": controller.space.as_json(),
        }
        durable.write_json(builder.folder / SHAPE, shape)
        weights.save(builder.folder / weights.WEIGHTS, {"mean": torch.from_numpy(done.best)})
        durable.write_bytes(builder.folder / "returns.png", _curve(done, session.env, settings))
        metrics = {
            "parameters": controller.parameters,
            "head": controller.head,
            "generations": len(done.generations),
            "best_generation": done.best_generation,
            "validation_return": done.best_score,
            "validation_episodes": settings.validation_episodes,
            "env_steps": done.env_steps,
        }
        artifact = builder.publish(metrics, session.provenance(began, vae.env))
    return made("train-controller", builder, artifact, _summary(artifact))


def _summary(artifact: Artifact) -> str:
    found = artifact.metrics
    return (
        f"best mean at generation {found['best_generation']} of {found['generations']}: validation return "
        f"{found['validation_return']:.1f} over {found['validation_episodes']} episodes; "
        f"{found['env_steps']:,} env steps, {found['parameters']} parameters ({found['head']})"
    )


def _evolve(
    session: Session, settings: ControllerSettings, search: Search, evaluation: Evaluation, folder: Path
) -> Progress:
    done = Progress()
    for logged in _logged(folder):
        replay(search, logged["candidates"], logged["returns"])
        done.add(logged, search.mean)
    if search.generation:
        console.say(f"train-controller {session.env}: goes on at generation {search.generation}")
    label = f"train-controller {session.env}"
    with console.progress(label, settings.max_generations, "generations", search.generation) as progress:
        while search.generation < settings.max_generations:
            session.stop.raise_if_stopped()
            candidates = search.ask()
            returns, steps = evaluation.generation(candidates, search.generation)
            search.tell(returns)
            line: dict[str, Any] = {
                "generation": search.generation,
                "candidates": digest(candidates),
                "returns": [float(value) for value in returns],
                "env_steps": steps,
            }
            if search.generation % settings.validate_every == 0 or search.generation == settings.max_generations:
                validated, steps = evaluation.validation(search.mean)
                line["validation"] = [float(value) for value in validated]
                line["env_steps"] += steps
            durable.append_line(folder / LOG, json.dumps(line))
            done.add(line, search.mean)
            progress.update(search.generation, mean=f"{returns.mean():.1f}", best_validation=f"{done.best_score:.1f}")
    return done


def _logged(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of the log, in a file that ends with a whole line."""
    path = folder / LOG
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole, newline, torn = text.rpartition("\n")
    if torn:
        durable.write_bytes(path, (whole + newline).encode())
    return [json.loads(line) for line in whole.splitlines()]


def _curve(done: Progress, env: str, settings: ControllerSettings) -> bytes:
    numbers = [line["generation"] for line in done.generations]
    population = Curve(
        f"population, mean and range ({settings.in_})",
        numbers,
        [float(np.mean(line["returns"])) for line in done.generations],
        [float(np.min(line["returns"])) for line in done.generations],
        [float(np.max(line["returns"])) for line in done.generations],
    )
    validated = [line for line in done.generations if len(line.get("validation", ())) > 1]
    scores = [Score.of(np.array(line["validation"])) for line in validated]
    mean = Curve(
        "validated mean, 95 % interval (real)",
        [line["generation"] for line in validated],
        [score.mean for score in scores],
        [score.mean - score.ci95 for score in scores],
        [score.mean + score.ci95 for score in scores],
    )
    return draw([population, mean], f"{env}: C", "generation", "return per episode")
