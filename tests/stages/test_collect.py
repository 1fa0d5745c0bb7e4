import numpy as np

from stages.collect import Collection, play_episode
from tests.conftest import TINY
from wm.envs.catalogue import EnvRecipe


def test_an_episode_is_a_function_of_recipe_seed_and_index() -> None:
    collection = Collection(EnvRecipe(TINY, 32), "sticky", seed=3, max_steps=0)
    first = [play_episode(collection, index).unpack() for index in (0, 1, 5)]
    again = [play_episode(collection, index).unpack() for index in (5, 1, 0)][::-1]
    for one, two in zip(first, again, strict=True):
        assert np.array_equal(one.frames, two.frames)
        assert np.array_equal(one.actions, two.actions)
    other = play_episode(Collection(EnvRecipe(TINY, 32), "sticky", seed=4, max_steps=0), 0).unpack()
    assert other.seed != first[0].seed


def test_an_atari_episode_repeats_too_because_the_rom_is_reloaded_with_the_seed() -> None:
    collection = Collection(EnvRecipe("Breakout", 32), "sticky", seed=0, max_steps=60)
    one = play_episode(collection, 2).unpack()
    play_episode(collection, 7)
    two = play_episode(collection, 2).unpack()
    assert np.array_equal(one.frames, two.frames)
    assert one.truncated
