import numpy as np
import pytest

from stages.collect import Collection, play_episode, require_same_view, shown_by
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


def test_recipes_of_pictures_are_what_they_were_before_changes_could_be_shown() -> None:
    plain = shown_by(TINY, CollectSettings())
    assert plain.as_json() == {"name": TINY, "size": 64, "gray": False, "actions": "auto", "render": "exact"}
    assert "show" not in CollectSettings().result_settings()
    changes = shown_by(TINY, CollectSettings(show="changes"))
    assert changes.as_json() == {**plain.as_json(), "show": "changes"}
    assert EnvConfig(**changes.as_json()) == changes


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("show", EnvConfig(TINY)),
        ("size", EnvConfig(TINY, 32, show="changes")),
        ("gray", EnvConfig(TINY, gray=True, show="changes")),
    ],
)
def test_a_controller_collects_only_what_its_v_can_see(name: str, asked: EnvConfig) -> None:
    require_same_view(EnvConfig(TINY, show="changes"), EnvConfig(TINY, render="gymnasium", show="changes"))
    with pytest.raises(RecipeMismatch, match=f"^{name} is .* `--set {name}="):
        require_same_view(EnvConfig(TINY, show="changes"), asked)
