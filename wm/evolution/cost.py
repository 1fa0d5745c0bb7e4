"""What a search takes, computed and measured before it starts."""

from collections.abc import Callable

import numpy as np
import torch

from wm.dreams.env import InitialStates
from wm.dreams.rollout import rollout_dreams
from wm.evolution.fitness import DREAMS_PER_CANDIDATE, MAX_DREAM_STEPS, VALIDATION_DREAMS
from wm.evolution.temperature import DREAMS, GENERATIONS, TEMPERATURES
from wm.models.controller import Controller
from wm.models.mdnrnn.predictor import Predictor
from wm.rollouts.speed import SHORTEST, PlayingSpeed
from wm.settings import ControllerSettings
from wm.training.precision import pick

MEANS = 64  # of the search's means, equally spaced, that are saved for `wm dream`
# One step would be mostly the start of a rollout.
TIMED_DREAM_STEPS = 5


def disk_bytes(controller: Controller, whiteners: int) -> int:
    """Bytes that the best weights of a search, its means and so many whiteners take, while it runs and afterwards."""
    # Means of float32 and the best one; the matrices are float64, of the inputs of an output and its bias.
    side = controller.parameters // controller.outputs
    return (MEANS + 1) * controller.parameters * 4 + whiteners * side**2 * 8


def most_steps(settings: ControllerSettings, longest: int) -> int:
    """The most real steps of a training whose episodes have at most `longest`, within --max-env-steps.

    Of a search those of its validations, its candidates, and what whitens it or chooses the temperature. With --in
    mixed all candidates but the first may turn out to play real episodes; with --in dream only the best mean plays. By
    policy gradient those of the training and the validations at its end.
    """
    validation = settings.validation_episodes * longest
    if settings.policy_gradient:
        if settings.in_ == "real":
            return settings.step_limit + 2 * validation
        earlier = settings.max_dream_steps // settings.validate_steps * validation
        return min(earlier, settings.step_limit or earlier) + 2 * validation
    generations = settings.early, settings.max_generations - settings.early
    sweep = (GENERATIONS, 0) if settings.temperature == "auto" else (0, 0)
    most = _candidate_steps(settings, longest, *sweep)
    if settings.in_ == "dream":
        return most + validation
    validations = settings.max_generations // settings.validate_every + 1 + len(settings.restart_ends)
    most += (validations + len(settings.whitened_later)) * validation
    most += _candidate_steps(settings, longest, *generations)
    return min(most, settings.step_limit or most)


def most_dream_steps(settings: ControllerSettings, longest: int) -> int:
    """The most dreamt steps of a search, its validations and the choice of its temperature included."""
    longest = longest or MAX_DREAM_STEPS
    first, final = _lengths(longest, settings.max_steps, settings.final_phase_steps)
    per_step = settings.popsize * DREAMS_PER_CANDIDATE
    most = per_step * (settings.early * first + (settings.max_generations - settings.early) * final)
    if settings.in_ == "dream":
        most += (settings.max_generations // settings.validate_every + 1) * VALIDATION_DREAMS * first
    if settings.temperature == "auto":
        most += len(TEMPERATURES) * GENERATIONS * settings.popsize * DREAMS * first
    return most


def search_seconds(
    clock: Callable[[], float],
    settings: ControllerSettings,
    controller: Controller,
    memory: Predictor,
    speed: PlayingSpeed,
    workers: int,
) -> tuple[float, float]:
    """The least and the most seconds of a search, with `memory` as M."""
    least, most = speed.duration(most_steps(settings, speed.longest), workers)
    if settings.in_ == "real":
        return least, most
    if settings.in_ == "mixed":  # no candidate may leave the dream
        least = 0.0
    dreamt = most_dream_steps(settings, speed.longest) * _dream_seconds(clock, settings.popsize, controller, memory)
    return least + SHORTEST * dreamt, most + dreamt


def _lengths(longest: int, max_steps: int, final_phase_steps: int) -> tuple[int, int]:
    """Steps of a candidate's episode, before the final phase and in it."""
    episode = max_steps or longest
    return min(episode, longest), min(final_phase_steps * episode, longest)


def _candidate_steps(settings: ControllerSettings, longest: int, early: int, final: int) -> int:
    """Real steps of all candidates of so many generations before the final phase and in it."""
    lengths = _lengths(longest, settings.max_steps, settings.final_phase_steps)
    episodes = early * lengths[0] + final * settings.final_phase_episodes * lengths[1]
    return episodes * settings.popsize * settings.episodes_per_eval


def _dream_seconds(clock: Callable[[], float], popsize: int, controller: Controller, memory: Predictor) -> float:
    """The time of a step of one of a generation's dreams, which the second of two rollouts takes."""
    count = popsize * DREAMS_PER_CANDIDATE
    # Wide bounds, which no latent reaches.
    z, bound = torch.zeros(count, memory.latent), torch.full((memory.latent,), 10.0)
    initial = InitialStates.at_start(memory, z, controller.space.width, -bound, bound)
    weights = torch.from_numpy(np.zeros((count, controller.parameters), np.float32))
    dtype = pick("auto", torch.device("cpu")).dtype
    seconds = 0.0
    for _ in range(2):
        started = clock()
        dreams = rollout_dreams(memory, controller, weights, initial, 1.0, TIMED_DREAM_STEPS, 0, "timed", dtype=dtype)
        seconds = (clock() - started) / int(dreams.lengths.sum())
    return seconds
