import numpy as np
import pytest

from tests.conftest import TINY
from wm.envs.known_envs import KNOWN_ENVS
from wm.envs.registry import EnvConfig
from wm.errors import UsageProblem
from wm.rollouts.collection import Collection, describe, play_episode, play_sample
from wm.runtime import Runtime


def test_an_episode_is_a_function_of_recipe_seed_and_index() -> None:
    collection = Collection(EnvConfig(TINY, 32), "sticky", seed=3, max_steps=0)
    first = [play_episode(collection, index).unpack() for index in (0, 1, 5)]
    again = [play_episode(collection, index).unpack() for index in (5, 1, 0)][::-1]
    for one, two in zip(first, again, strict=True):
        assert np.array_equal(one.frames, two.frames)
        assert np.array_equal(one.actions, two.actions)
    other = play_episode(Collection(EnvConfig(TINY, 32), "sticky", seed=4, max_steps=0), 0).unpack()
    assert other.seed != first[0].seed


def test_an_atari_episode_repeats_too_because_the_rom_is_reloaded_with_the_seed() -> None:
    collection = Collection(EnvConfig("Breakout", 32), "sticky", seed=0, max_steps=60)
    one = play_episode(collection, 2).unpack()
    play_episode(collection, 7)
    two = play_episode(collection, 2).unpack()
    assert np.array_equal(one.frames, two.frames)
    assert one.truncated


def test_random_play_leaves_out_actions_that_repeat_others() -> None:
    collection, recipe = describe(EnvConfig("Pong", 32), "auto", seed=3, max_steps=80)
    assert recipe["policy"] == "sticky among [0, 2, 3]"  # of six: FIRE repeats each of them
    assert set(play_episode(collection, 0).unpack().actions.tolist()) == {0, 2, 3}
    _, recipe = describe(EnvConfig("Breakout", 32), "auto", seed=3, max_steps=80)
    assert recipe["policy"] == "sticky"  # FIRE serves


def test_the_recipe_has_everything_that_an_episode_depends_on() -> None:
    collection, recipe = describe(EnvConfig(TINY, 32), "auto", seed=3, max_steps=7)
    assert collection == Collection(EnvConfig(TINY, 32, frames="observation"), "sticky", 3, 7)
    assert recipe["policy"] == "sticky"
    assert (recipe["seed"], recipe["max_steps"], recipe["env"]) == (3, 7, EnvConfig(TINY, 32).as_json())
    _, recipe = describe(EnvConfig("CarRacing", action_space="continuous"), "auto", seed=0, max_steps=0)
    assert recipe["policy"] == f"brownian from {list(KNOWN_ENVS['CarRacing'].brownian_low or ())}"


def test_a_policy_that_does_not_fit_the_action_space_is_refused_before_anything_is_played() -> None:
    with pytest.raises(UsageProblem, match="brownian needs continuous actions"):
        describe(EnvConfig(TINY, 32), "brownian", seed=0, max_steps=0)


def test_a_sample_has_the_first_episodes_and_their_speed() -> None:
    ticks = iter(range(100))
    sample = play_sample(Collection(EnvConfig(TINY, 32), "sticky", 0, 0), 2, Runtime(lambda: float(next(ticks))))
    assert [episode.index for episode in sample.episodes] == [0, 1, 2]
    assert sample.mean_rows == np.mean([episode.rows for episode in sample.episodes])
    assert sample.rows_per_second > 0
