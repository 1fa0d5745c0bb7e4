"""The search for C from its inputs to its figures: what a generation needs, where it starts, and what it has cost."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from wm.artifacts import durable
from wm.artifacts.runs import Builder
from wm.artifacts.workspace import Workspace
from wm.dreams.initial_states import early_initial_states, load_newest_latents
from wm.evolution.cma_es import Search
from wm.evolution.cost import MEANS
from wm.evolution.evolve import Evolution, load_whitener, logged, save_whitener
from wm.evolution.fitness import Fitness
from wm.evolution.history import History
from wm.evolution.search_log import LOG
from wm.evolution.stopping import resume_from_other_limits
from wm.evolution.temperature import choose_temperature
from wm.evolution.transfer import initial_parameters
from wm.evolution.whitening import Matrix
from wm.pretrained import TrainedMdnRnn, build_controller, save_controller
from wm.rollouts.players import PolicySpec
from wm.rollouts.workers import open_workers
from wm.runtime import Runtime
from wm.seeding import integer
from wm.settings import ControllerSettings


def evolve_controller(
    runtime: Runtime,
    workspace: Workspace,
    settings: ControllerSettings,
    seed: int,
    mdnrnn: TrainedMdnRnn,
    policy: PolicySpec,
    builder: Builder,
) -> tuple[History, dict[str, Any]]:
    """Evolve C, save it in the builder's folder, and return the history and the metrics.

    After a kill the log of fitness values is replayed, and the same candidates follow. If only limits have changed, the
    generations that both searches share are replayed too, and the result is that of one uninterrupted search.
    """
    began = runtime.clock()
    label, folder, initial = f"train-controller {workspace.env}", builder.folder, None
    controller = build_controller(mdnrnn, policy.controller, policy.env)
    start, earlier_cost = initial_parameters(
        settings.init_from, workspace, mdnrnn, policy.controller, controller, imitate=settings.imitate
    )
    if settings.in_ != "real":
        initial = early_initial_states(load_newest_latents(workspace, mdnrnn), mdnrnn)
    shared, source = resume_from_other_limits(builder.run, settings, folder)
    new_search = partial(Search, start, settings.popsize, settings.sigma, algo=settings.algo)
    with open_workers(runtime) as workers:
        fitness = Fitness(settings, seed, policy, mdnrnn, workers, initial)
        # No search's seed: its first candidates are not those that chose the temperature, of this run or another.
        sweep = partial(new_search, seed=integer(seed, "temperature"))
        temperature, sweep_steps = choose_temperature(runtime, settings.temperature, sweep, fitness, folder, label)
        whitener = (
            _initial_whitener(workspace, mdnrnn, fitness, folder, len(start)) if settings.whitened_from_start else None
        )
        search = partial(new_search, seed=seed, whitener=whitener)
        evolve = partial(Evolution, runtime, settings, fitness, temperature, folder, label)
        if source is not None:
            if evolve().log_fits(search()):
                runtime.log(f"{label}: the first {shared} generations are those of {source}")
            else:
                durable.remove(folder / LOG)
        evolution = evolve()
        evolution.run(search(), bool(settings.init_from), began)
        figures = search_figures(evolution.history, fitness, settings.in_, settings.validation_episodes)
    history = evolution.history
    assert history.best is not None
    generations, means = evolution.spaced_means(MEANS)
    save_controller(folder, policy.controller, controller, history.best, means)
    figures["env_steps"] += sweep_steps
    figures |= {"earlier_seconds": evolution.earlier_seconds} if evolution.earlier_seconds else {}
    return history, {
        **figures,
        "temperature": temperature,
        **earlier_cost,
        "parameters": controller.parameters,
        "head": controller.head,
        "means": generations,
        "trusted": evolution.trusts_dream,
        "ended": evolution.stop_reason(),
    }


def _initial_whitener(
    workspace: Workspace, mdnrnn: TrainedMdnRnn, fitness: Fitness, folder: Path, parameters: int
) -> Matrix:
    """By the inputs in the episodes of the newest dataset. A search that is resumed loads the one its log names."""
    lines = logged(folder)
    if not lines:
        save_whitener(folder, 0, fitness.initial_whitener(load_newest_latents(workspace, mdnrnn)))
    return load_whitener(folder, 0, lines[0].value if lines else None, parameters)


def search_figures(history: History, fitness: Fitness, place: str, validation_episodes: int) -> dict[str, Any]:
    """Figures of a search in this place: real, dream or mixed. One in the dream alone has no real validations, so its
    best mean plays one."""
    figures = {
        "in": place,
        "generations": history.generation,
        "best_generation": history.best_generation,
        "validation_return": history.best_score,
        "validation_episodes": validation_episodes,
        "env_steps": history.env_steps,
        "seconds": history.seconds,
    }
    if place != "dream":
        return figures
    assert history.best is not None
    returns, steps = fitness.validation_returns(history.best)
    return figures | {
        "validation_return": float(np.mean(returns)),
        "env_steps": history.env_steps + steps,
        "dream_return": history.best_score,
    }
