"""Every environment can be played with keys, and its actions are the environment's."""

from typing import Any

import numpy as np
import pytest

from tests.odd_envs import Odd
from wm.actions import ActionSpace
from wm.envs.known_envs import KNOWN_ENVS
from wm.envs.registry import EnvConfig
from wm.report.play.controls import Controls, controls_for, measure_pace

SPACES = [(name, choice) for name in sorted(KNOWN_ENVS) for choice in ("auto",)]
SPACES += [("LunarLander", "continuous"), ("CarRacing", "discrete")]


def held(controls: Controls, space: ActionSpace, label: str = "") -> np.ndarray:
    """The encoded action while the button of this label is held, or without any."""
    action = controls.idle[0]
    for button in controls.buttons:
        if button.label == label:
            action = button.action if space.discrete else list(controls.idle[0])
            for dimension, value in button.values.items():
                action[dimension] = value
    return space.encode(np.asarray(action))


@pytest.mark.parametrize(("env", "choice"), SPACES)
def test_keys_give_actions_of_the_environment(env: str, choice: str) -> None:
    built = EnvConfig(env, action_space=choice).make_unrendered()
    space = ActionSpace.of(built.action_space)
    built.close()
    controls = controls_for(env, space)
    keys = [key for button in controls.buttons for key in button.keys]
    assert len(keys) == len(set(keys)) >= 2
    assert not {key.lower() for key in keys} & {"p", ".", "r", "n"}  # the page's own
    for label in ["", *(button.label for button in controls.buttons)]:
        encoded = held(controls, space, label)
        assert encoded.shape == (space.width,)
        assert np.all(np.abs(encoded) <= 1)
    assert len({held(controls, space, button.label).tobytes() for button in controls.buttons}) == len(controls.buttons)


def test_an_unknown_environment_has_a_button_for_each_action_or_arrows_for_two_dimensions() -> None:
    many = controls_for("my:Env", ActionSpace(count=11))
    assert [button.action for button in many.buttons] == list(range(11))
    assert [button.keys for button in many.buttons[7:]] == [("8",), ("9",), (), ()]
    box = ActionSpace(low=(-2.0, 0.0, 1.0), high=(2.0, 4.0, 3.0))
    controls = controls_for("my:Env", box)
    assert controls.idle == ((0.0, 2.0, 2.0),)
    assert [button.values for button in controls.buttons] == [{0: -2.0}, {0: 2.0}, {1: 0.0}, {1: 4.0}]


def test_a_known_environment_with_other_actions_is_played_like_an_unknown_one() -> None:
    assert len(controls_for("Pong", ActionSpace(count=3)).buttons) == 3
    assert controls_for("CarRacing", ActionSpace(low=(0.0,), high=(1.0,))).idle == ((0.5,),)


@pytest.mark.parametrize(
    ("config", "pace"),
    [
        (EnvConfig("CartPole"), (30, 500)),
        (EnvConfig("CarRacing", action_repeat=4), (12, 250)),
        (EnvConfig("CarRacing", max_steps=300, action_repeat=4), (12, 300)),
        (EnvConfig("Acrobot"), (15, 500)),
        (EnvConfig("Catch"), (15, 80)),
    ],
)
def test_the_pace_is_the_games_but_no_faster_than_a_hand(config: EnvConfig, pace: tuple[int, int]) -> None:
    assert measure_pace(config) == pace


@pytest.mark.parametrize(
    ("named", "pace"),
    [(None, 15), ("fast", 15), (0, 15), (-3, 15), (float("nan"), 15), (float("inf"), 15), (10**400, 15), (12.4, 12)],
)
def test_a_pace_that_is_no_positive_number_is_the_usual_one(
    named: Any, pace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "metadata", {"render_modes": ["rgb_array"], "render_fps": named})
    assert measure_pace(EnvConfig("tests.odd_envs:Plain-v0"))[0] == pace
