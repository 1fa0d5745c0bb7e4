import hashlib
import importlib.util
from dataclasses import replace
from importlib.machinery import ModuleSpec
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.conftest import TINY
from wm.actions import ActionSpace
from wm.envs.known_envs import KNOWN_ENVS
from wm.envs.registry import EnvConfig, find_env, require_same_observation
from wm.errors import MissingPackage, RecipeMismatch, UsageProblem


@pytest.mark.parametrize("name", sorted(KNOWN_ENVS))
def test_every_named_environment_shows_frames_and_labels(name: str) -> None:
    env = EnvConfig(name).make(labelled=True)
    frame, info = env.reset(seed=1)
    env.action_space.seed(0)
    for _ in range(3):
        frame, reward, *_, info = env.step(env.action_space.sample())
    assert frame.shape == (64, 64, 3)
    assert frame.dtype == np.uint8
    assert frame.std() > 1
    assert len(info["labels"]) == len(env.label_names) > 0
    assert np.isfinite(float(reward))
    env.close()


def test_size_gray_and_action_space_are_chosen() -> None:
    env = EnvConfig("LunarLander", size=48, gray=True, action_space="continuous").make()
    assert env.reset(seed=0)[0].shape == (48, 48, 1)
    assert env.action_space.shape == (2,)
    with pytest.raises(UsageProblem, match="Pong has one action space"):
        EnvConfig("Pong", action_space="continuous").make()


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(UsageProblem, match="did you mean Pong"):
        find_env("Pnog")
    with pytest.raises(UsageProblem, match="did you mean LunarLander"):
        find_env("lunarlander")


def test_any_gymnasium_id_works_as_it_is() -> None:
    env = EnvConfig("MountainCar-v0", size=32).make()
    assert env.reset(seed=0)[0].shape == (32, 32, 3)


@pytest.mark.parametrize("left", [None, ModuleSpec("ale_py", None)])
def test_a_missing_package_gets_its_pip_line_and_a_folder_of_its_name_is_none(
    left: ModuleSpec | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: left if name == "ale_py" else real(name))
    with pytest.raises(MissingPackage, match="pip install ale-py"):
        EnvConfig("Pong").make()


@pytest.mark.parametrize("name", ["Pong", "CarRacing", "LunarLander"])
def test_an_episode_does_not_depend_on_what_was_played_before(name: str) -> None:
    def play(env: object, seed: int) -> bytes:
        frame, _ = env.reset(seed=seed)  # type: ignore[attr-defined]
        frames = [frame, *(env.step(env.action_space.sample() * 0 + 0)[0] for _ in range(20))]  # type: ignore[attr-defined]
        return np.stack(frames).tobytes()

    used, fresh = EnvConfig(name).make(), EnvConfig(name).make()
    play(used, 7)
    assert play(used, 3) == play(fresh, 3)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("observation", EnvConfig(TINY)),
        ("size", EnvConfig(TINY, 32, observation="foreground")),
        ("gray", EnvConfig(TINY, gray=True, observation="foreground")),
    ],
)
def test_a_controller_collects_only_what_its_v_can_see(name: str, asked: EnvConfig) -> None:
    trained = EnvConfig(TINY, observation="foreground")
    require_same_observation(trained, replace(trained, render="gymnasium"))
    with pytest.raises(RecipeMismatch, match=f"^{name} is .* `--set {name}="):
        require_same_observation(trained, asked)


def test_other_actions_than_those_of_the_training_are_refused() -> None:
    EnvConfig(TINY).require_actions(ActionSpace(3), "runs/tiny/mdnrnn")
    boxes = [ActionSpace(0, (-1.0, 0.0), (1.0, 1.0)), ActionSpace(0, (-5.0,), (5.0,))]
    said = ["2 discrete actions", "actions of 2 dimensions from (-1, 0) to 1", "actions of 1 dimension from -5 to 5"]
    for space, words in zip((ActionSpace(2), *boxes), said, strict=True):
        with pytest.raises(RecipeMismatch) as raised:
            EnvConfig(TINY).require_actions(space, "runs/tiny/mdnrnn")
        assert f"takes 3 discrete actions but runs/tiny/mdnrnn was trained with {words}; undo" in str(raised.value)


def test_catch_plays_as_ever() -> None:
    """Its source is in no recipe, because its id has a version: what plays otherwise is called Catch-v1."""
    env, digest = EnvConfig("Catch")._build(), hashlib.sha256()
    for seed in range(8):
        digest.update(env.reset(seed=seed)[0].tobytes())
        for action in (0, 2, 1, 1, 2, 2, 0):
            frame, reward, terminated, truncated, _ = env.step(action)
            digest.update(frame.tobytes() + np.float64(reward).tobytes() + bytes([terminated, truncated]))
    assert digest.hexdigest()[:16] == "2fcd353911c089b5"


@pytest.mark.parametrize(
    ("named", "threshold"), [(np.float32(5), 5.0), ("5", None), (float("nan"), None), (None, None)]
)
def test_a_threshold_is_a_finite_number(named: Any, threshold: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym.registry["CartPole-v1"], "reward_threshold", named)
    assert EnvConfig("CartPole").reward_threshold == threshold
