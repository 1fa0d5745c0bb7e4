from contextlib import closing
from typing import Any

import numpy as np
import pytest

from wm.envs.noop_start import MOST_NOOPS
from wm.envs.registry import EnvConfig
from wm.errors import UsageProblem


def starts(config: EnvConfig, seeds: range) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """The emulator's frame at which an agent begins each episode, and what it sees."""
    with closing(config.make()) as env:
        resets = (env.reset(seed=seed) for seed in seeds)
        return [(info["episode_frame_number"], frame.copy()) for frame, info in resets]


@pytest.mark.parametrize("render", ["exact", pytest.param("gymnasium", marks=pytest.mark.slow)])
def test_without_sticky_actions_episodes_begin_after_no_ops_that_their_seed_decides(render: str) -> None:
    config = EnvConfig("Pong", sticky=False, render=render)
    numbers = [number for number, _ in starts(config, range(12))]
    assert numbers[6:] == [number for number, _ in starts(config, range(6, 12))]
    assert len(set(numbers)) > 6
    assert all(4 <= number <= 4 * MOST_NOOPS for number in numbers)
    assert starts(EnvConfig("Pong", render=render), range(1))[0][0] == 0


def test_both_renderers_begin_alike() -> None:
    exact, other = (EnvConfig("Pong", sticky=False, render=render) for render in ("exact", "gymnasium"))
    for one, two in zip(starts(exact, range(3)), starts(other, range(3)), strict=True):
        assert one[0] == two[0]
        assert np.array_equal(one[1], two[1])


def test_without_sticky_actions_every_action_is_carried_out() -> None:
    """Two episodes that begin at the same frame and have the same actions are the same, whatever their seeds."""
    config, seen = EnvConfig("Breakout", sticky=False), {}
    actions = np.random.default_rng(0).integers(0, 4, 60)
    with closing(config.make()) as env:
        for seed in range(20):
            begin = env.reset(seed=seed)[1]["episode_frame_number"]
            frames = [env.step(int(action))[0].copy() for action in actions]
            assert np.array_equal(seen.setdefault(begin, frames), frames)
    assert len(seen) < 20  # some began alike


def test_only_atari_games_have_sticky_actions() -> None:
    with pytest.raises(UsageProblem, match="sticky_actions is false but LunarLander is no Atari game; leave it out"):
        EnvConfig("LunarLander", sticky=False).make()
