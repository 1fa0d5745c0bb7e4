from dataclasses import replace

import numpy as np
import pytest

from stages.collect import Collection, env_config, play_episode, require_same_view
from tests.conftest import TINY
from wm.envs.registry import EnvConfig
from wm.errors import RecipeMismatch
from wm.settings import CollectSettings


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


def test_the_recipe_has_every_field_of_the_environment() -> None:
    config = env_config(TINY, CollectSettings(observation="foreground"))
    assert config.as_json()["observation"] == "foreground"
    assert EnvConfig(**config.as_json()) == config


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
    require_same_view(trained, replace(trained, render="gymnasium"))
    with pytest.raises(RecipeMismatch, match=f"^{name} is .* `--set {name}="):
        require_same_view(trained, asked)
