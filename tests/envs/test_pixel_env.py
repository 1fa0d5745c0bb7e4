from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from wm.artifacts.json_reader import Mismatch
from wm.artifacts.schemas import ENVIRONMENT
from wm.envs.observation import LAG
from wm.envs.pixel_env import PixelEnv
from wm.envs.registry import EnvConfig
from wm.envs.resize import AreaResize
from wm.errors import UsageProblem
from wm.settings import CollectSettings


class _Levels(gym.Env):  # type: ignore[type-arg]
    """Each episode has larger pictures than the one before."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gym.spaces.Box(-1, 1, (4,))
    action_space = gym.spaces.Discrete(3)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.size = render_mode, 30

    def reset(self, **_: Any) -> Any:
        self.size += 10
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(4, np.float32), 1.0, False, False, {}

    def render(self) -> Any:
        return np.full((self.size, self.size, 3), 7, np.uint8)


def shrink(frame: np.ndarray, size: int) -> np.ndarray:
    """The first axis averaged to `size`, on a grid that old and new length both divide."""
    return frame.repeat(size, axis=0).reshape(size, len(frame), *frame.shape[1:]).mean(axis=1)


def by_definition(frame: np.ndarray, size: int) -> np.ndarray:
    """Every output pixel is the average over the area it covers."""
    rows = shrink(frame.astype(np.float64), size)
    return shrink(rows.transpose(1, 0, 2), size).transpose(1, 0, 2)


@pytest.mark.parametrize("shape", [(210, 160, 3), (96, 96, 3), (400, 600, 3), (50, 70, 1)])
@pytest.mark.parametrize("size", [32, 37, 48])
def test_resizing_is_the_exact_area_average(shape: tuple[int, int, int], size: int) -> None:
    frame = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    small = AreaResize(*shape, size)(frame)
    assert small.dtype == np.uint8
    assert np.abs(small - by_definition(frame, size)).max() <= 0.51


def test_a_constant_picture_stays_what_it_is() -> None:
    assert (AreaResize(210, 160, 3, 64)(np.full((210, 160, 3), 255, np.uint8)) == 255).all()


@pytest.mark.parametrize("gray", [False, True])
def test_what_stands_still_becomes_background(gray: bool) -> None:
    noop, right = 0, 2
    plain, moving = (EnvConfig("Breakout", gray=gray, observation=kind).make() for kind in ("rgb", "foreground"))
    for seed in (3, 4):
        first = plain.reset(seed=seed)[0].astype(int)
        assert (moving.reset(seed=seed)[0] == 128).all()
        for _ in range(10):
            frame, shown = plain.step(right)[0].astype(int), moving.step(right)[0].astype(int)
        moved = np.abs(frame - first) > 80  # the paddle, where it is and where it was
        assert moved.any()
        assert (np.sign(shown - 128) == np.sign(frame - first))[moved].all()
        for _ in range(70):
            shown = moving.step(noop)[0]
        assert (shown == 128).all()


@pytest.mark.parametrize(("repeat", "steps_ago"), [(1, LAG), (2, LAG // 2), (4, 1), (8, 1)])
def test_motion_is_the_difference_to_the_first_frame_now_and_before(repeat: int, steps_ago: int) -> None:
    gray = EnvConfig("LunarLander", gray=True, action_repeat=repeat).make()
    motion = EnvConfig("LunarLander", observation="motion", action_repeat=repeat).make()
    for seed in (3, 4):  # another moon in each: nothing is remembered of the episode before
        first, shown = gray.reset(seed=seed)[0].astype(int), motion.reset(seed=seed)[0]
        differences = [np.full(first.shape, 128)]
        for action in (2, 2, 3, 0, 1, 2, 2, 3, 3, 2, 1):
            assert shown.shape == motion.observation_space.shape == (64, 64, 3)
            for channel, lag in enumerate((0, steps_ago, 2 * steps_ago)):
                assert (shown[..., [channel]] == differences[max(len(differences) - 1 - lag, 0)]).all()
            differences.append(128 + (gray.step(action)[0].astype(int) - first) // 2)
            shown = motion.step(action)[0]
    assert (differences[-1] != differences[-1 - steps_ago]).any()
    assert (shown == 128).mean() > 0.9  # the moon is gone


def test_motion_has_no_single_channel() -> None:
    with pytest.raises(UsageProblem, match="leave out --gray"):
        EnvConfig("LunarLander", gray=True, observation="motion").make()


def test_an_action_is_held_and_its_rewards_add_up() -> None:
    plain, repeated = (EnvConfig("CarRacing", action_repeat=repeat).make() for repeat in (1, 3))
    for env in (plain, repeated):
        env.reset(seed=4)
    for step in range(20):
        action = np.array([np.sin(step), 0.5, 0.0], np.float32)
        one = [plain.step(action) for _ in range(3)]
        frame, reward, *_ = repeated.step(action)
        assert np.array_equal(frame, one[-1][0])
        assert reward == sum(float(each[1]) for each in one)


def test_what_is_known_of_an_environment_is_told_in_actions() -> None:
    assert EnvConfig("CarRacing").max_idle == 100
    assert EnvConfig("CarRacing", action_repeat=3).max_idle == 34
    assert EnvConfig("CarRacing", action_repeat=3).random_steps == 334


def test_an_action_is_let_go_where_the_episode_ends() -> None:
    env, plain = EnvConfig("CartPole", action_repeat=16).make(), EnvConfig("CartPole").make()
    env.reset(seed=0)
    plain.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, _, _ = env.step(1)
        total += float(reward)
    alone = 0.0
    while not plain.step(1)[2]:
        alone += 1
    assert total == alone + 1


@pytest.mark.parametrize(("observation", "blank"), [("rgb", 0), ("foreground", 128)])
def test_a_mask_hides_rows_in_percent_of_the_height(observation: str, blank: int) -> None:
    plain, masked = (EnvConfig("Breakout", observation=observation, mask=mask).make() for mask in ("none", "50-88"))
    frames, seen = plain.reset(seed=1)[0], masked.reset(seed=1)[0]
    for _ in range(20):
        assert (seen[32:56] == blank).all()
        assert (seen[:32] == frames[:32]).all()
        assert (seen[56:] == frames[56:]).all()
        frames, seen = plain.step(2)[0], masked.step(2)[0]


def test_flicker_blanks_half_of_the_frames_and_repeats_with_the_seed() -> None:
    plain, masked = (EnvConfig("CartPole", mask=mask).make() for mask in ("none", "flicker"))

    def episode(env: PixelEnv, seed: int) -> list[np.ndarray]:
        return [env.reset(seed=seed)[0], *(env.step(step % 2)[0] for step in range(15))]

    episodes = {seed: (episode(plain, seed), episode(masked, seed)) for seed in range(12)}
    blank = {seed: [not seen.any() for seen in masked] for seed, (_, masked) in episodes.items()}
    for frames, seen in episodes.values():
        assert all(not two.any() or (one == two).all() for one, two in zip(frames, seen, strict=True))
    assert 0.4 < np.mean(list(blank.values())) < 0.6
    assert len({tuple(each) for each in blank.values()}) == 12
    assert [not seen.any() for seen in episode(masked, 3)] == blank[3]


@pytest.mark.parametrize("mask", ["", "half", "60-50", "5-5", "10-101", "-5-10", "1.5-3", "١-٢"])
def test_what_is_no_mask_is_refused(mask: str) -> None:
    with pytest.raises(UsageProblem, match=r"--set mask is .*expected none, flicker, or rows in percent"):
        CollectSettings(mask=mask)
    with pytest.raises(Mismatch, match="mask"):
        ENVIRONMENT({"name": "Pong", "mask": mask}, "env")


def test_another_episode_may_have_pictures_of_another_shape() -> None:
    """A level of another size is one picture in all of its frames."""
    gym.register("Levels-v0", _Levels)
    env = EnvConfig("Levels-v0", 32).make()
    for _ in range(3):
        assert (env.reset()[0] == 7).all()
        assert (env.step(0)[0] == 7).all()
    gym.registry.pop("Levels-v0")
