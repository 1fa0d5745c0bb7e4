from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from wm.actions import LARGEST_BOUND, MOST_ACTIONS, ActionSpace
from wm.artifacts import schemas
from wm.artifacts.json_reader import Mismatch
from wm.errors import UsageProblem


def test_discrete_actions_are_one_hot() -> None:
    space = ActionSpace.of(gym.spaces.Discrete(3))
    assert space.encode(np.array([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert space.column(4).shape == (4,)


def test_a_box_is_scaled_to_plus_minus_one() -> None:
    space = ActionSpace.of(gym.spaces.Box(np.array([-1, 0], np.float32), np.array([1, 1], np.float32)))
    assert space.encode(np.array([[-1, 0.5], [1, 1]], np.float32)).tolist() == [[-1, 0], [1, 1]]
    assert ActionSpace.from_json(space.as_json()) == space


def test_other_spaces_are_refused() -> None:
    with pytest.raises(UsageProblem, match="not supported"):
        ActionSpace.of(gym.spaces.MultiBinary(3))


def test_a_recipe_takes_exactly_the_spaces_that_can_be_played() -> None:
    for space in (gym.spaces.Discrete(MOST_ACTIONS), gym.spaces.Box(-1, LARGEST_BOUND, (MOST_ACTIONS,), np.float64)):
        described = ActionSpace.of(space).as_json()
        schemas.action_space(described, "action_space")
    larger = {"count": MOST_ACTIONS + 1, "low": [], "high": []}, {"count": 0, "low": [-1.1e38], "high": [0.0]}
    for value in (*larger, {"count": 0, "low": [0.0] * (MOST_ACTIONS + 1), "high": [1.0] * (MOST_ACTIONS + 1)}):
        with pytest.raises(Mismatch):
            schemas.action_space(value, "action_space")
        with pytest.raises(UsageProblem, match="expected Discrete or a bounded Box, of at most 8192 actions or dim"):
            ActionSpace.of(ActionSpace.from_json(value).to_gymnasium())


BOXES = [ActionSpace(low=(-2.0,), high=(5.0,)), ActionSpace(low=(-1.0, 0.0, 0.0), high=(1.0, 1.0, 1.0))]


@pytest.mark.parametrize("space", [ActionSpace(count=3), *BOXES])
def test_gymnasiums_space_has_the_same_actions(space: ActionSpace) -> None:
    assert ActionSpace.of(space.to_gymnasium()) == space


@pytest.mark.parametrize("space", BOXES, ids=("box 1", "box 3"))
def test_a_box_of_actions_keeps_its_bounds(space: ActionSpace) -> None:
    box = space.to_gymnasium()
    assert (box.low.tolist(), box.high.tolist()) == (list(space.low), list(space.high))


@pytest.mark.parametrize(
    ("space", "actions", "message"),
    [
        (ActionSpace(count=3), [0, 3], "an action is 3; expected integers from 0 to 2"),
        (ActionSpace(count=3), [[0]], r"actions are int64 of shape \(1, 1\)"),
        (ActionSpace(count=3), [0.0], "actions are float64"),
        (ActionSpace(low=(-1.0, 0.0), high=(1.0, 2.0)), [0.5, 0.5], r"expected finite numbers, shape \(steps, 2\)"),
        (ActionSpace(low=(-1.0, 0.0), high=(1.0, 2.0)), [[0.5, np.nan]], "an action is nan"),
    ],
)
def test_what_is_no_action_is_refused_in_a_batch(space: ActionSpace, actions: list[Any], message: str) -> None:
    with pytest.raises(UsageProblem, match=message):
        space.require(np.array(actions))
    space.require(space.column(3))


@pytest.mark.parametrize(
    ("space", "action", "message"),
    [
        (ActionSpace(count=3), 3, "the action is 3; expected an integer from 0 to 2"),
        (ActionSpace(count=3), [0], r"the action is \[0\]; expected an integer"),
        (ActionSpace(count=3), None, "the action is None"),
        (ActionSpace(low=(-1.0, 0.0), high=(1.0, 2.0)), [0.5], r"expected finite numbers, shape \(2,\)"),
        (ActionSpace(low=(-1.0, 0.0), high=(1.0, 2.0)), [0.5, np.inf], r"the action is \[0.5, inf\]"),
    ],
)
def test_what_is_no_action_is_refused(space: ActionSpace, action: Any, message: str) -> None:
    with pytest.raises(UsageProblem, match=message):
        space.validated(action)
    space.validated(space.column(1)[0])
