"""Batches and updates: functions of the seed and the update's number."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.models.test_dreamer import SMALL, dreamer, trainer_of
from wm.actions import ActionSpace
from wm.dreamer.replay_store import replay_buffer
from wm.dreamer.updates import ReplayUpdates, dreamer_config, new_dreamer, new_trainer, seconds_per_update, to_batch
from wm.episodes.replay import ReplayBuffer
from wm.settings import DreamerSettings
from wm.training.precision import Precision

CPU = torch.device("cpu")


def filled() -> ReplayBuffer:
    random, buffer = np.random.default_rng(0), replay_buffer(1, 40, SMALL, ActionSpace(count=3))
    for number in range(40):
        frame = random.integers(0, 256, (32, 32, 1), np.uint8)
        if number % 15:
            buffer.add_step(0, frame, number % 3, float(number), False)
        else:
            buffer.start_episode(0, frame, number)
    return buffer


def metrics_of(seed: int, number: int) -> dict[str, float]:
    update = ReplayUpdates(trainer_of(dreamer()), 3, 6, seed, CPU)
    return {name: value.item() for name, value in update(filled(), number, True).items()}


def test_an_update_is_a_function_of_seed_and_number() -> None:
    first = metrics_of(0, 5)
    assert metrics_of(0, 5) == first
    assert metrics_of(0, 6) != first
    assert metrics_of(1, 5) != first


def test_a_windows_first_step_counts_as_an_episodes_first() -> None:
    steps = filled().sample(4, 6, np.random.default_rng(0))
    first = to_batch(steps, torch.from_numpy(steps.frames), CPU).first
    assert first[:, 0].tolist() == [1] * 4
    assert first[:, 1:].tolist() == steps.first[:, 1:].astype(float).tolist()


def test_settings_give_the_networks_their_sizes() -> None:
    settings = DreamerSettings(size=32, gray=False, deter=16, stoch=4, classes=4, depth=4)
    config = dreamer_config(settings, ActionSpace(count=5))
    assert (config.size, config.channels, config.action, config.discrete) == (32, 3, 5, True)
    assert (config.deter, config.stoch, config.classes, config.depth, config.bins) == (16, 4, 4, 4, settings.bins)


def test_initial_weights_are_a_function_of_the_seed_and_leave_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    weights = [next(new_dreamer(SMALL, seed).parameters()) for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_the_time_of_an_update_is_that_of_the_fastest() -> None:
    times = iter([0.0, 9.0, 10.0, 13.0, 20.0, 24.0, 30.0, 38.0])
    settings = DreamerSettings(horizon=3)
    trainer = new_trainer(dreamer(), settings, Precision("fp32", CPU))
    assert seconds_per_update(trainer, 2, 4, CPU, lambda: next(times)) == 3.0


@pytest.mark.parametrize(("capacity", "expected"), [(256, (32, 64, 16)), (20_000, (256, 4096, 500))])
def test_a_small_replay_has_a_shorter_prefill_smaller_parts_and_more_lines(capacity: int, expected: Any) -> None:
    settings = DreamerSettings(capacity=capacity)
    assert (settings.prefill, settings.part_rows, settings.log_every) == expected
