"""A generation of 64 candidates in four dreams of 1,000 steps each, one core: against one dream at a time; in seconds
against 2.5; and what CMA-ES itself takes of it, and of a real generation of Pong (32 candidates, 500 steps)."""

import time

import numpy as np
import torch

from benchmarks.measure import one_core, report
from benchmarks.reference import HIDDEN, LATENT, MIXTURES
from benchmarks.rollouts import lockstep
from wm.actions import ActionSpace
from wm.dreams.env import InitialStates
from wm.dreams.rollout import rollout_dreams
from wm.evolution.cma_es import Search
from wm.models.controller import Controller
from wm.models.mdnrnn.network import MdnRnn
from wm.training.precision import pick

# CarRacing's.
SPACE = ActionSpace(low=(-1.0, 0.0, 0.0), high=(1.0, 1.0, 1.0))
# The generation that the page on speed names.
CANDIDATES, DREAMS, STEPS, GENERATIONS = 64, 4, 1000, 5


def main() -> None:
    one_core()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MdnRnn(LATENT, SPACE.width, HIDDEN, MIXTURES, 10.0).requires_grad_(False)
    with torch.no_grad():
        model.heads.bias[-1] = -60.0  # no dream ends early
    controller, bound = Controller(LATENT + HIDDEN, SPACE, "tanh"), torch.full((LATENT,), 6.0)

    def dream(candidates: np.ndarray, dreams: int, steps: int) -> float:
        count = len(candidates) * dreams
        initial = InitialStates.at_start(model, torch.zeros(count, LATENT), SPACE.width, -bound, bound)
        policies = torch.from_numpy(np.repeat(candidates, dreams, axis=0))
        dtype = pick("auto", torch.device("cpu")).dtype if count > 1 else torch.float32
        began = time.perf_counter()
        rollout_dreams(model, controller, policies, initial, 1.0, steps, 0, dtype=dtype)
        return (time.perf_counter() - began) / (count * steps)

    search = Search(np.zeros(controller.parameters, np.float32), CANDIDATES, 0.1, 0)
    ours, alone, own, random = [], [], [], np.random.default_rng(0)
    for _ in range(GENERATIONS):
        began = time.perf_counter()
        candidates = search.ask()
        ask_seconds = time.perf_counter() - began
        ours.append(dream(candidates, DREAMS, STEPS))
        alone.append(dream(candidates[:1], 1, STEPS))
        began = time.perf_counter()
        search.tell(random.standard_normal(CANDIDATES))
        own.append(ask_seconds + time.perf_counter() - began)
    each, one = float(np.median(ours)), float(np.median(alone))
    ratio = float(np.median(np.array(alone) / np.array(ours)))
    report("dream_generation", round(1 / each), round(1 / one), 20.0, "steps/s", round(ratio, 2))
    seconds = each * CANDIDATES * DREAMS * STEPS
    report("dream_generation_time", round(seconds, 2), 2.5, 1.0, "s", lower_is_better=True)
    cost = float(np.median(own))
    report("cma_cost_dream", round(100 * cost / (seconds + cost), 2), 10.0, 1.0, "%", lower_is_better=True)
    play = lockstep("Pong", 8)
    play()
    began = time.perf_counter()
    steps = sum(play() for _ in range(4))
    real = 32 * 500 * (time.perf_counter() - began) / steps
    report("cma_cost_real", round(100 * cost / (real + cost), 2), 2.0, 1.0, "%", lower_is_better=True)


if __name__ == "__main__":
    main()
