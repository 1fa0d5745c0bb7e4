import itertools
from typing import Any, cast

import pytest

from wm.actions import ActionSpace
from wm.models.controller import Controller
from wm.models.mdnrnn.predictor import Predictor
from wm.policy_gradient.cost import training_seconds
from wm.rollouts.speed import PlayingSpeed
from wm.settings import ControllerSettings

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
