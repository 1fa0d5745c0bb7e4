"""`wm train-controller`: V + M -> C, evolved in the real environment, in the dream, or in both."""

import time
from functools import partial
from typing import Any

import numpy as np

from stages import console
from stages.session import Session, stage_name
from stages.stage import Plan, Result, made, up_to_date
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Run
from wm.dreams.initial_states import load_latents, load_newest_latents, newest_frames
from wm.evolution.cma_es import Search
from wm.evolution.evolve import BASIS, Evolution, keep_basis, load_basis
from wm.evolution.fitness import Fitness, most_steps
from wm.evolution.history import History
from wm.evolution.stopping import LOG, resume_from_other_limits
from wm.evolution.temperature import choose_temperature
from wm.evolution.transfer import TransferSource, load_transfer_source, transferred_weights
from wm.models.controller import pick_head
from wm.pretrained import (
    ControllerConfig,
    TrainedMdnRnn,
    TrainedVae,
    build_controller,
    load_pair,
    save_controller,
)
from wm.report.plots import Curve, draw
from wm.rollouts.players import PolicySpec
from wm.rollouts.workers import playing_memory
from wm.settings import ControllerSettings
from wm.stats import Score

RECIPE = 6
MEANS = 64  # of the search's means, equally spaced, that are kept for the fidelity report


def _run(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> Run:
    inputs = {"vae": vae.artifact.fingerprint, "mdnrnn": mdnrnn.artifact.fingerprint}
    if settings.init_from:
        inputs["init_from"] = load_transfer_source(settings.init_from).controller.artifact.fingerprint
    name = stage_name(session, "controller")
    return session.make_run(name, "controller", RECIPE, settings.result_settings(), inputs)


def _player(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> PolicySpec:
    head = pick_head(settings.head, mdnrnn.space, vae.env.spec().head)
    form = ControllerConfig(head, settings.hidden, settings.memory, session.seed)
    fingerprint = vae.artifact.fingerprint + mdnrnn.artifact.fingerprint
    return PolicySpec(vae.env, vae.artifact.folder, mdnrnn.artifact.folder, form, fingerprint)


def plan(session: Session, settings: ControllerSettings) -> Plan:
    """What `train_controller` would do. Episodes differ in length, so the time is a range."""
    vae, mdnrnn = load_pair(session.workspace)
    run = _run(session, settings, vae, mdnrnn)
    controller = build_controller(mdnrnn, _player(session, settings, vae, mdnrnn).form, vae.env)
    workers = session.open_workers().count
    steps = most_steps(settings, vae.env.random_steps)
    done = run.current() is not None
    what = "up to date" if done else f"{settings.max_generations} generations of {settings.popsize} ({settings.in_})"
    if not done and (why := run.why_stale()):
        what += f" ({why})"
    span = (0.0, 0.0) if done else (steps / 1500 / workers / 3, steps / 150 / workers)
    disk = 0 if done else (MEANS + 2) * controller.parameters * 4 + 200_000
    return Plan("train-controller", run.folder, what, disk, playing_memory(workers), span)


def train_controller(session: Session, settings: ControllerSettings) -> Result:
    """Evolve C; validate the distribution's mean every few generations; publish the best mean by validation.

    Killed anywhere, the log of fitness values is replayed and the same candidates follow. So they do where nothing but
    limits was changed: what was played under others is taken over, and the result is that of one go.
    """
    began = time.monotonic()
    vae, mdnrnn = load_pair(session.workspace)
    run = _run(session, settings, vae, mdnrnn)
    if (current := run.current()) is not None:
        return up_to_date("train-controller", current, _summary(current))
    session.budget(run.folder).require(2_000_000, 0, "evolving C")
    player = _player(session, settings, vae, mdnrnn)
    controller = build_controller(mdnrnn, player.form, player.env)
    start, before = np.zeros(controller.parameters, np.float32), {"env_steps_before": 0, "seconds_before": 0.0}
    if settings.init_from:
        previous = load_transfer_source(settings.init_from)
        if previous.same_vae(mdnrnn):
            start = transferred_weights(previous, mdnrnn, player.form, controller, load_latents(session, mdnrnn))
        else:
            frames, latents = newest_frames(session, mdnrnn), load_newest_latents(session, mdnrnn)
            start = transferred_weights(previous, mdnrnn, player.form, controller, latents, frames)
        before = _spent_on(previous, mdnrnn)
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("train-controller", builder.restored, _summary(builder.restored), "restored")
        taken, source = resume_from_other_limits(run, settings, builder.folder)
        with session.open_workers() as workers:
            evaluation = Fitness(session, settings, player, workers, mdnrnn)
            temperature, sought = choose_temperature(session, settings, evaluation, start, builder.folder)
            basis = None
            if settings.whitened_from_start:
                if not (builder.folder / BASIS.format(0)).exists():
                    keep_basis(builder.folder, 0, evaluation.basis_at_the_start(load_newest_latents(session, mdnrnn)))
                basis = load_basis(builder.folder, 0)
            begin = partial(Search, start, settings.popsize, settings.sigma, session.seed, settings.algo, basis)
            evolve = partial(Evolution, session, settings, evaluation, temperature, builder.folder)
            if source is not None:
                if evolve().agrees(begin()):
                    console.say(f"train-controller {session.env}: the first {taken} generations are those of {source}")
                else:
                    (builder.folder / LOG).unlink()
            evolution = evolve()
            evolution.run(begin(), warm=bool(settings.init_from))
            history = evolution.history
            assert history.best is not None
            dreamt = evaluation.validation(history.best) if settings.in_ == "dream" else None
        generations, means = history.spaced_means(MEANS)
        save_controller(builder.folder, player.form, controller, history.best, means)
        durable.write_bytes(builder.folder / "returns.png", _curve(history, session.env, settings))
        metrics = (
            _metrics(history, settings, dreamt, sought)
            | before
            | {
                "parameters": controller.parameters,
                "head": controller.head,
                "means": generations,
                "temperature": temperature,
                "trusted": evolution.trusted,
                "ended": evolution.ended(),
            }
        )
        artifact = builder.publish(metrics, session.provenance(began, vae.env))
    return made("train-controller", builder, artifact, _summary(artifact))


def _spent_on(previous: TransferSource, mdnrnn: TrainedMdnRnn) -> dict[str, float]:
    """Real steps of all searches before this one, and what they and their Ms took, but for this M."""
    found = previous.controller.artifact.metrics
    seconds = found["seconds"] + found.get("seconds_before", 0.0)
    for there, same in (
        (previous.vae, previous.same_vae(mdnrnn)),
        (previous.mdnrnn, previous.mdnrnn.artifact.fingerprint == mdnrnn.artifact.fingerprint),
    ):
        seconds += 0.0 if same else there.artifact.manifest["provenance"]["wall_seconds"]
    return {"env_steps_before": found["env_steps"] + found.get("env_steps_before", 0), "seconds_before": seconds}


def _metrics(
    history: History, settings: ControllerSettings, after: tuple[Any, int] | None, sought: int
) -> dict[str, Any]:
    """What is recorded of a search; `after` are the returns, and their steps, of the best mean's only real episodes,
    `sought` the steps it took to choose a temperature."""
    returns, steps = after if after is not None else (None, 0)
    found = {
        "in": settings.in_,
        "generations": history.generation,
        "best_generation": history.best_generation,
        "validation_return": history.best_score if returns is None else float(np.mean(returns)),
        "validation_episodes": settings.validation_episodes,
        "env_steps": history.env_steps + steps + sought,
        "seconds": history.seconds,
    }
    return found if returns is None else found | {"dream_return": history.best_score}


def _summary(artifact: Artifact) -> str:
    found = artifact.metrics
    dreamt = f" (in the dream {found['dream_return']:.1f})" if "dream_return" in found else ""
    limit = {
        "hours": "; the clock ended it",
        "steps": "; its steps are spent",
        "target": "; the target is reached",
    }.get(found["ended"], "")
    return (
        f"best mean at generation {found['best_generation']} of {found['generations']}: validation return "
        f"{found['validation_return']:.1f} over {found['validation_episodes']} episodes{dreamt}; "
        f"{found['env_steps']:,} env steps, {found['parameters']} parameters ({found['head']}){limit}"
    )


def _curve(history: History, env: str, settings: ControllerSettings) -> bytes:
    curves = []
    for where in ("dream", "real"):
        played = [line for line in history.lines if line["in"] == where]
        if played:
            curves.append(
                Curve(
                    f"candidates, mean and range ({where})",
                    [line["generation"] for line in played],
                    [float(np.mean(line["returns"])) for line in played],
                    [float(np.min(line["returns"])) for line in played],
                    [float(np.max(line["returns"])) for line in played],
                )
            )
    scores = [Score.of(np.array(line["validation"])) for line in history.validated]
    where = "dream" if settings.in_ == "dream" else "real"
    mean = Curve(
        f"validated mean, 95 % interval ({where})",
        [line["generation"] for line in history.validated],
        [score.mean for score in scores],
        [score.mean - score.ci95 for score in scores],
        [score.mean + score.ci95 for score in scores],
    )
    return draw([*curves, mean], f"{env}: C", "generation", "return per episode")
