"""`wm train-controller`: V + M -> C, evolved in the real environment, in the dream, or in both."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.session import Session, stage_name
from stages.stage import Plan, Result, plan_stage, run_stage
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Builder, Run
from wm.dreams.initial_states import early_initial_states, load_latents, load_newest_latents
from wm.evolution.cma_es import Search
from wm.evolution.evolve import WHITENER, Evolution, load_whitener, save_whitener
from wm.evolution.fitness import Fitness, most_steps
from wm.evolution.history import History
from wm.evolution.stopping import LOG, resume_from_other_limits
from wm.evolution.temperature import choose_temperature
from wm.evolution.transfer import load_transfer_source, transferred_weights
from wm.evolution.whitening import Matrix
from wm.models.controller import Controller, pick_head
from wm.pretrained import (
    ControllerConfig,
    TrainedMdnRnn,
    TrainedVae,
    build_controller,
    load_pair,
    save_controller,
)
from wm.report.returns_plot import draw_returns
from wm.rollouts.players import PolicySpec, policy_spec
from wm.rollouts.speed import measure_env
from wm.rollouts.workers import open_workers, playing_memory
from wm.settings import ControllerSettings

RECIPE = 6
MEANS = 64  # of the search's means, equally spaced, that are saved for `wm dream`
_STOPPED = {"hours": "time limit reached", "steps": "step limit reached", "target": "target reached"}


def _run(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> Run:
    inputs = {"vae": vae.artifact.fingerprint, "mdnrnn": mdnrnn.artifact.fingerprint}
    if settings.init_from:
        inputs["init_from"] = load_transfer_source(settings.init_from).controller.artifact.fingerprint
    name = stage_name(session, "controller")
    return session.make_run(name, "controller", RECIPE, settings.result_settings(), inputs)


def _config(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> ControllerConfig:
    head = pick_head(settings.head, mdnrnn.space, vae.env.spec().head)
    return ControllerConfig(head, settings.hidden, settings.memory, session.seed)


def plan(session: Session, settings: ControllerSettings) -> Plan:
    """What `train_controller` would do. Episodes differ in length, so the time is a range."""
    vae, mdnrnn = load_pair(session.workspace)
    run = _run(session, settings, vae, mdnrnn)

    def estimate() -> Plan:
        controller = build_controller(mdnrnn, _config(session, settings, vae, mdnrnn), vae.env)
        workers, clock = session.processes, session.runtime.clock
        speed = measure_env(vae.env, clock).with_models(vae.model, mdnrnn.model, clock)
        what = f"{settings.max_generations} generations of {settings.popsize} ({settings.in_})"
        disk = (MEANS + 2) * controller.parameters * 4 + 200_000
        seconds = speed.duration(most_steps(settings, speed.longest), workers)
        return Plan("train-controller", run.folder, what, disk, playing_memory(workers), seconds)

    return plan_stage("train-controller", run, estimate)


def train_controller(session: Session, settings: ControllerSettings) -> Result:
    """Evolve C; validate the distribution's mean every few generations; publish the best mean by validation.

    After a kill the log of fitness values is replayed, and the same candidates follow. If only limits have changed, the
    generations that both searches share are replayed too, and the result is that of one uninterrupted search.
    """
    vae, mdnrnn = load_pair(session.workspace)
    run = _run(session, settings, vae, mdnrnn)

    def work(builder: Builder) -> dict[str, Any]:
        policy = policy_spec(vae, mdnrnn, _config(session, settings, vae, mdnrnn))
        controller = build_controller(mdnrnn, policy.controller, policy.env)
        start, earlier_cost = _start(session, settings, mdnrnn, policy, controller)
        evolution, figures = _evolve(session, settings, mdnrnn, policy, start, builder)
        history = evolution.history
        assert history.best is not None
        generations, means = history.spaced_means(MEANS)
        save_controller(builder.folder, policy.controller, controller, history.best, means)
        durable.write_bytes(
            builder.folder / "returns.png",
            draw_returns(history, session.env, "dream" if settings.in_ == "dream" else "real"),
        )
        return {
            **figures,
            **earlier_cost,
            "parameters": controller.parameters,
            "head": controller.head,
            "means": generations,
            "trusted": evolution.trusts_dream,
            "ended": evolution.stop_reason(),
        }

    return run_stage(session, "train-controller", run, (2_000_000, "evolving C"), _summary, work, vae.env)


def _start(
    session: Session, settings: ControllerSettings, mdnrnn: TrainedMdnRnn, policy: PolicySpec, controller: Controller
) -> tuple[NDArray[np.float32], dict[str, float]]:
    """The parameters the search starts from, and the cost of earlier searches and their Ms."""
    if not settings.init_from:
        return np.zeros(controller.parameters, np.float32), {"env_steps_before": 0, "seconds_before": 0.0}
    source = load_transfer_source(settings.init_from)
    latents = load_latents(session.workspace, mdnrnn)
    start = transferred_weights(source, mdnrnn, policy.controller, controller, latents)
    return start, source.cost(mdnrnn)


def _evolve(
    session: Session,
    settings: ControllerSettings,
    mdnrnn: TrainedMdnRnn,
    policy: PolicySpec,
    start: NDArray[np.float32],
    builder: Builder,
) -> tuple[Evolution, dict[str, Any]]:
    """The finished search, and its figures."""
    runtime, label, folder = session.runtime, f"train-controller {session.env}", builder.folder
    initial = None
    if settings.in_ != "real":
        initial = early_initial_states(load_newest_latents(session.workspace, mdnrnn), mdnrnn)
    shared, source = resume_from_other_limits(builder.run, settings, folder)
    with open_workers(runtime) as workers:
        fitness = Fitness(settings, session.seed, policy, mdnrnn, workers, initial)
        temperature, sweep_steps = choose_temperature(runtime, settings, session.seed, fitness, start, folder, label)
        whitener = _initial_whitener(session, mdnrnn, fitness, folder) if settings.whitened_from_start else None
        search = partial(Search, start, settings.popsize, settings.sigma, session.seed, settings.algo, whitener)
        evolve = partial(Evolution, runtime, settings, fitness, temperature, folder, label)
        if source is not None:
            if evolve().log_fits(search()):
                runtime.log(f"{label}: the first {shared} generations are those of {source}")
            else:
                (folder / LOG).unlink()
        evolution = evolve()
        evolution.run(search(), validate_start=bool(settings.init_from))
        figures = _figures(settings, evolution.history, fitness)
    figures["env_steps"] += sweep_steps
    return evolution, figures | {"temperature": temperature}


def _initial_whitener(session: Session, mdnrnn: TrainedMdnRnn, fitness: Fitness, folder: Path) -> Matrix:
    """By the inputs in the episodes of the newest dataset. A resumed search loads it."""
    if not (folder / WHITENER.format(0)).exists():
        save_whitener(folder, 0, fitness.initial_whitener(load_newest_latents(session.workspace, mdnrnn)))
    return load_whitener(folder, 0)


def _figures(settings: ControllerSettings, history: History, fitness: Fitness) -> dict[str, Any]:
    """Figures of a search. One in the dream alone has no real validations, so its best mean plays one."""
    figures = {
        "in": settings.in_,
        "generations": history.generation,
        "best_generation": history.best_generation,
        "validation_return": history.best_score,
        "validation_episodes": settings.validation_episodes,
        "env_steps": history.env_steps,
        "seconds": history.seconds,
    }
    if settings.in_ != "dream":
        return figures
    assert history.best is not None
    returns, steps = fitness.validation_returns(history.best)
    return figures | {
        "validation_return": float(np.mean(returns)),
        "env_steps": history.env_steps + steps,
        "dream_return": history.best_score,
    }


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    dream = f" (in the dream {metrics['dream_return']:.1f})" if "dream_return" in metrics else ""
    stopped = f"; {_STOPPED[metrics['ended']]}" if metrics["ended"] in _STOPPED else ""
    return (
        f"best mean at generation {metrics['best_generation']} of {metrics['generations']}: validation return "
        f"{metrics['validation_return']:.1f} over {metrics['validation_episodes']} episodes{dream}; "
        f"{metrics['env_steps']:,} env steps, {metrics['parameters']} parameters ({metrics['head']}){stopped}"
    )
