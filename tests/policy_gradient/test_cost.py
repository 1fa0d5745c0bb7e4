import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from wm.actions import ActionSpace
from wm.artifacts.json_reader import table
from wm.models.controller import Controller, ControllerConfig
from wm.models.mdnrnn.predictor import Predictor
from wm.policy_gradient.cost import disk_bytes, training_seconds
from wm.policy_gradient.network import ActorCritic
from wm.policy_gradient.ppo import make_optimizer
from wm.policy_gradient.snapshots import MOST
from wm.policy_gradient.training import _Weights
from wm.pretrained import save_controller
from wm.rollouts.speed import PlayingSpeed
from wm.settings import ControllerSettings
from wm.training.checkpoint import Checkpoints

SPACE = ActionSpace(3)
NO_MEMORY = cast(Predictor, None)  # in reality M is not timed


def seconds(**settings: Any) -> tuple[float, float]:
    """On a machine that takes 1 ms for a step, and 1 ms from one look at the clock to the next."""
    controller = Controller(4, SPACE, "categorical", layers=(8, 8))
    described = ControllerSettings(algo="ppo", max_env_steps=100_000, validate_steps=25_000, **settings)
    clock = itertools.count(0, 0.001).__next__
    return training_seconds(clock, described, controller, NO_MEMORY, PlayingSpeed((64, 64, 3), SPACE, 100, 0.001), 1, 1)


def test_a_target_may_be_reached_at_the_first_validation() -> None:
    least, most = seconds()
    assert seconds(target_return=5.0) == (pytest.approx(least / 4), most)


def test_a_limit_of_time_bounds_both() -> None:
    least, most = seconds()
    shorter = seconds(max_hours=0.01)
    assert least > 36
    assert shorter[0] == 36
    assert 36 < shorter[1] < most


def test_an_imitation_takes_time_before_the_training() -> None:
    least, most = seconds()
    imitating = seconds(imitate=True, init_from="runs/earlier")
    assert imitating[0] == least
    assert imitating[1] > most


def test_the_counted_bytes_are_those_of_two_checkpoints_and_of_what_is_published(tmp_path: Path) -> None:
    controller = Controller(64, SPACE, "categorical", layers=(128, 128))
    weights = _Weights(ActorCritic(controller, 0), controller.parameters)
    optimizer = make_optimizer(weights.network, 1e-3)
    outputs, values = weights.network(torch.randn(8, 64))
    (outputs.sum() + values.sum()).backward()
    optimizer.step()
    training = cast(Any, SimpleNamespace(model=weights, optimizer=optimizer, state=dict, state_schema=table({})))
    Checkpoints(tmp_path, training, keep_best=False).save(1, {"validation_loss": 0.0})
    (checkpoint,) = tmp_path.glob("checkpoints/*.safetensors")
    policy = np.zeros(controller.parameters, np.float32)
    config = ControllerConfig("categorical", (), "none", 0, layers=(128, 128))
    save_controller(
        tmp_path, config, controller, policy, np.tile(policy, (MOST, 1)), weights.network.state_dict(), policy + 0
    )
    kept, scratch = disk_bytes(controller)
    assert 2 * checkpoint.stat().st_size == pytest.approx(scratch, rel=0.01)
    assert (tmp_path / "weights.safetensors").stat().st_size == pytest.approx(kept, rel=0.01)
