import gymnasium as gym
import numpy as np
import pytest

from wm.actions import ActionSpace
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
