"""The wall that every environment of somebody else passes."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from wm.actions import ActionSpace
from wm.envs.checked_env import CheckedEnv
from wm.errors import EnvironmentFault, Stopped, UsageProblem

ROOT = Path(__file__).resolve().parents[2]
SAME_FLOATS = "a Box of float64 with bounds that floats of 32 bits do not tell apart"


class Scripted(gym.Env):  # type: ignore[type-arg]
    """Returns the rewards it is given, and keeps the actions it receives."""

    observation_space = gym.spaces.Box(0, 1, (1,))

    def __init__(self, space: gym.Space[Any], rewards: Any = (), ends: Any = (False, False), info: Any = None) -> None:
        self.reset_info: Any = {}
        self.action_space, self.rewards, self.received = space, list(rewards), list[Any]()
        self.ends, self.info = ends, {} if info is None else info

    def reset(self, **_: Any) -> Any:
        return np.zeros(1), self.reset_info

    def step(self, action: Any) -> Any:
        self.received.append(action)
        return np.zeros(1), self.rewards.pop(0) if self.rewards else 0.0, *self.ends, self.info


@pytest.mark.parametrize(
    ("reward", "described"),
    [
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (1e39, r"1e\+39"),  # it is no float32
        (-1e30, r"-1e\+30"),  # its square is none
        (None, "None"),
        (np.array([1.0, 2.0]), r"array of shape \(2,\)"),
        (np.array([1.0]), r"array of shape \(1,\)"),
        (1j, "of type complex"),
        pytest.param(10**5000, "of 16610 bits", id="an integer that Python does not print"),
        ("1", "of type str"),
    ],
)
def test_a_reward_that_is_no_finite_number_is_refused_with_step_seed_and_value(reward: Any, described: str) -> None:
    env = CheckedEnv(Scripted(gym.spaces.Discrete(2), [1.0, 0.5, reward]), "Odd-v0")
    env.reset(seed=7)
    env.step(0)
    env.step(0)
    sentence = f"^Odd-v0 returned the reward {described} at step 2 of the episode with seed 7; expected a finite"
    with pytest.raises(EnvironmentFault, match=sentence):
        env.step(0)


def test_an_episode_is_truncated_after_its_limit_and_the_next_one_counts_anew() -> None:
    env = CheckedEnv(Scripted(gym.spaces.Discrete(2)), "Odd-v0", max_steps=3)
    for _ in range(2):
        env.reset(seed=7)
        assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    assert env.own_limit == 0
    assert CheckedEnv(gym.wrappers.TimeLimit(Scripted(gym.spaces.Discrete(2)), 9), "Odd-v0").own_limit == 9


def test_rewards_of_every_number_type_pass_as_floats() -> None:
    rewards = [1, True, np.float32(0.5), np.int64(-2), np.array(3.0)]
    env = CheckedEnv(Scripted(gym.spaces.Discrete(2), rewards), "Odd-v0")
    env.reset(seed=0)
    received = [env.step(0)[1] for _ in rewards]
    assert received == [1.0, 1.0, 0.5, -2.0, 3.0]
    assert {type(value) for value in received} == {float}


@pytest.mark.parametrize("end", [True, np.True_, 1, np.int64(1), 1.0, np.array(True)])
def test_an_end_of_every_boolean_type_passes_as_a_bool(end: Any) -> None:
    for ends, expected in (((end, False), [True, False]), ((0, end), [False, True])):
        _, _, *received, _ = CheckedEnv(Scripted(gym.spaces.Discrete(2), ends=ends), "Odd-v0").step(0)
        assert received == expected
        assert {type(value) for value in received} == {bool}


@pytest.mark.parametrize(
    ("end", "described"),
    [
        (None, "None"),
        ("False", "of type str"),
        (float("nan"), "nan"),
        (2, "2"),
        (np.array([False, True]), r"array of shape \(2,\)"),
    ],
)
def test_an_end_that_is_neither_true_nor_false_is_refused(end: Any, described: str) -> None:
    for name, ends in (("terminated", (end, False)), ("truncated", (False, end))):
        env = CheckedEnv(Scripted(gym.spaces.Discrete(2), ends=ends), "Odd-v0")
        with pytest.raises(EnvironmentFault, match=f"^Odd-v0 returned {name} {described} at step 0; expected True or"):
            env.step(0)


def test_a_reward_that_is_refused_is_told_how_large_one_may_be() -> None:
    for reward, fits in ((1e15, True), (-1e15, True), (1.1e15, False)):
        env = CheckedEnv(Scripted(gym.spaces.Discrete(2), [reward]), "Odd-v0")
        if fits:
            assert env.step(0)[1] == reward
        else:
            with pytest.raises(EnvironmentFault, match=r"expected a finite number of at most 1e\+15 in size, so fix"):
                env.step(0)


def test_an_info_of_reset_that_is_no_dict_is_refused() -> None:
    inner = Scripted(gym.spaces.Discrete(2))
    inner.reset_info = None
    sentence = (
        r"^Odd-v0 returned info None from reset\(\) of the episode with seed 7; expected a dict, so fix the .* reset"
    )
    with pytest.raises(EnvironmentFault, match=sentence):
        CheckedEnv(inner, "Odd-v0").reset(seed=7)


def test_an_info_that_is_no_dict_is_refused() -> None:
    env = CheckedEnv(Scripted(gym.spaces.Discrete(2), info=[1]), "Odd-v0")
    with pytest.raises(EnvironmentFault, match=r"^Odd-v0 returned info of type list at step 0; expected a dict"):
        env.step(0)


def test_steps_are_counted_within_an_episode() -> None:
    env = CheckedEnv(Scripted(gym.spaces.Discrete(2)), "Odd-v0")
    for steps in (3, 1):
        env.reset()
        for _ in range(steps):
            env.step(1)
        assert env.steps == steps


def test_discrete_actions_count_from_zero_whatever_the_environment_counts_from() -> None:
    inner = Scripted(gym.spaces.Discrete(3, start=5))
    env = CheckedEnv(inner, "Odd-v0")
    assert ActionSpace.of(env.action_space) == ActionSpace(count=3)
    for action in (0, np.int64(2)):
        env.step(action)
    assert inner.received == [5, 7]


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("action", [1, np.int32(1), np.int64(1)])
def test_a_discrete_action_has_the_type_that_its_space_samples(start: int, action: Any) -> None:
    inner = Scripted(gym.spaces.Discrete(3, start=start))
    CheckedEnv(inner, "Odd-v0").step(action)
    assert type(inner.received[0]) is type(inner.action_space.sample())
    assert inner.received[0].item() == start + 1


def test_an_action_space_of_an_episode_alone_is_refused() -> None:
    inner = Scripted(gym.spaces.Discrete(3))
    env = CheckedEnv(inner, "Odd-v0")
    inner.action_space = gym.spaces.Discrete(3)  # another of the same
    env.reset(seed=6)
    inner.action_space = gym.spaces.Discrete(2)
    with pytest.raises(EnvironmentFault, match=r"has the action space Discrete\(2\) in the episode with seed 7 but"):
        env.reset(seed=7)


def test_an_integer_box_receives_integers_and_random_actions_are_uniform() -> None:
    inner = Scripted(gym.spaces.Box(0, 3, (2,), np.int32))
    env = CheckedEnv(inner, "Odd-v0")
    space = ActionSpace.of(env.action_space)
    for action in np.random.default_rng(0).uniform(space.low, space.high, (4000, 2)).astype(np.float32):
        env.step(action)
    received = np.array(inner.received)
    assert received.dtype == np.int32
    counts = np.bincount(received.ravel())
    assert len(counts) == 4
    assert np.abs(counts - 2000).max() < 200
    env.step(np.array([-9.0, 9.0], np.float32))
    assert inner.action_space.contains(inner.received[-1])


@pytest.mark.parametrize(
    ("low", "high", "number"),
    [(-(2**23), 2**23, np.int64), (0, 2**23, np.uint64), (-(2**15), 2**15 - 1, np.int16), (0, 1, np.bool_)],
)
def test_an_integer_box_receives_its_bounds_and_every_integer_between(low: int, high: int, number: Any) -> None:
    inner = Scripted(gym.spaces.Box(low, high, (1,), number))
    env = CheckedEnv(inner, "Odd-v0")
    space = ActionSpace.of(env.action_space)
    actions = [space.low[0], low, *([high - 1] if high - low > 1 else []), high, space.high[0]]
    for action in actions:
        env.step(np.array([action], np.float32))
        assert inner.action_space.contains(inner.received[-1])
    assert [int(received[0]) for received in inner.received] == np.clip(actions, low, high).astype(int).tolist()


@pytest.mark.parametrize("shape", [(), (2, 2)])
def test_a_box_of_any_shape_is_flat_for_agents(shape: tuple[int, ...]) -> None:
    inner = Scripted(gym.spaces.Box(-1, 1, shape))
    env = CheckedEnv(inner, "Odd-v0")
    env.step(np.full(ActionSpace.of(env.action_space).width, 0.5, np.float32))
    assert inner.action_space.contains(inner.received[-1])


@pytest.mark.parametrize("number", [np.float16, np.float64])
@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_a_box_of_other_floats_receives_its_own_within_its_bounds(number: Any, shape: tuple[int, ...]) -> None:
    inner = Scripted(gym.spaces.Box(-0.1, 0.1, shape, number))  # float32's -0.1 is below float64's
    env = CheckedEnv(inner, "Odd-v0")
    space = ActionSpace.of(env.action_space)
    for action in (space.low, space.high):
        env.step(np.array(action, np.float32))
        assert inner.action_space.contains(inner.received[-1])
        assert inner.received[-1].dtype == number


def test_a_flat_box_of_floats_passes_unchanged() -> None:
    inner = Scripted(gym.spaces.Box(-1, 1, (2,)))
    action = np.array([0.25, 3.0], np.float32)
    CheckedEnv(inner, "Odd-v0").step(action)
    assert inner.received[0].dtype == np.float32
    assert inner.received[0].tolist() == [0.25, 3.0]


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_what_an_environment_writes_into_an_action_does_not_reach_the_agent(number: Any, shape: Any) -> None:
    inner = Scripted(gym.spaces.Box(-1, 1, shape, number))
    action = np.array([0.25, 0.5], np.float32)
    CheckedEnv(inner, "Odd-v0").step(action)
    inner.received[0] *= 0
    assert action.tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (gym.spaces.MultiDiscrete([3, 3]), "MultiDiscrete"),
        (gym.spaces.Dict({"a": gym.spaces.Discrete(2)}), "Dict"),
        (gym.spaces.Box(-np.inf, np.inf, (2,)), "an unbounded Box"),
        (gym.spaces.Box(-3.4e38, 3.4e38, (2,)), "an unbounded Box"),
        (gym.spaces.Box(-np.inf, np.inf, (2, 2)), "an unbounded Box"),
        (gym.spaces.Box(-1, 1, (0,)), "an empty Box"),
        (gym.spaces.Box(0, 3, (2, 0), np.int32), "an empty Box"),
        (gym.spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64), "a Box of int64 with a bound beyond 8388608"),
        (gym.spaces.Box(0, 2**64 - 1, (2, 2), np.uint64), "a Box of uint64 with a bound beyond 8388608"),
        (gym.spaces.Box(-(2**23) - 1, 0, (1,), np.int32), "a Box of int32 with a bound beyond 8388608"),
        (gym.spaces.Box(-3e38, 0, (2,)), r"a Box with a bound beyond 1e\+38"),
        (gym.spaces.Box(-1e300, 1e300, (2, 2), np.float64), "an unbounded Box"),
        (gym.spaces.Box(1e8, 1e8 + 1, (2,), np.float64), SAME_FLOATS),
        (gym.spaces.Box(-1e-300, 1e-300, (2, 2), np.float64), SAME_FLOATS),
        (gym.spaces.Box(-1, 1, (8193,)), "a Box of 8193 dimensions"),
        (gym.spaces.Discrete(8193), "a Discrete of 8193 actions"),
        (gym.spaces.Discrete(10**9, start=3), "a Discrete of 1000000000 actions"),
    ],
)
def test_other_action_spaces_are_refused_by_name(space: gym.Space[Any], kind: str) -> None:
    env = CheckedEnv(Scripted(space), "Odd-v0")
    with pytest.raises(UsageProblem, match=f"the action space is {kind}, which is not supported"):
        ActionSpace.of(env.action_space)


def test_only_one_place_builds_environments_and_it_wraps_them() -> None:
    for path in (ROOT / "wm").rglob("*.py"):
        calls = re.findall(r"gym\.make\(|registration\.build\(.*", path.read_text())
        if path.name == "registration.py":
            assert len(calls) == 1
        elif path.name == "registry.py":
            assert len(calls) == 1
            assert "return CheckedEnv(built if self.sticky else NoopStart(built), self.name" in path.read_text()
        else:
            assert not calls, path


def test_a_wish_to_end_passes_and_a_close_that_fails_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise Stopped(15)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    env = CheckedEnv(Scripted(gym.spaces.Discrete(2)), "Odd-v0")
    for call, raised in ((stop, Stopped), (interrupt, KeyboardInterrupt)):
        for method in (env.reset, env.render, env.close, lambda: env.step(0)):
            for name in ("reset", "step", "render", "close"):
                monkeypatch.setattr(Scripted, name, call)
            with pytest.raises(raised):
                method()

    def fail(_: Any) -> None:
        raise RuntimeError("closed already")

    monkeypatch.setattr(Scripted, "close", fail)
    with pytest.raises(EnvironmentFault, match=r"^Odd-v0 raised RuntimeError: closed already in close\(\); fix"):
        env.close()
    with pytest.raises(ZeroDivisionError), closing(env):
        raise ZeroDivisionError
