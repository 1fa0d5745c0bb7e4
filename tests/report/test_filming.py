"""Films of test episodes: what is kept of them, on disk and on a page."""

import io
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from PIL import Image

from tests.conftest import PROVENANCE, TINY
from tests.odd_envs import IMAGE, Odd
from wm.artifacts import manifest
from wm.artifacts.runs import Artifact, read
from wm.envs.registry import EnvConfig
from wm.errors import BadData
from wm.report import filming
from wm.report.agent_film import FILMS, Film, choose_episodes, difference, read_films, save_films
from wm.report.filming import Recorder
from wm.report.run_summary import FILM_ROOM, RunSummary, fit_films


def make_film(name: str = "median", frames: int = 5, every: int = 2) -> Film:
    sizes, steps = list(range(10, 10 + frames)), every * (frames - 1)
    space = {"count": 3, "low": [], "high": []}
    actions, rewards = [step % 3 for step in range(steps)], [0.5] * steps
    return Film(
        name, 1, 7, 4.0, steps + 3, True, every, 20, 40, 40, 32, 8, sizes, ["seen"], space, ["left"], actions, rewards,
        bytes(sum(sizes)), b"sheet",
    )  # fmt: skip


@pytest.mark.parametrize(("returns", "median", "worst"), [([3, 1, 2], 2, 1), ([5, 5], 0, 0), ([4, 3, 2, 1], 2, 3)])
def test_the_median_and_the_worst_episode_are_shown(returns: list[float], median: int, worst: int) -> None:
    assert choose_episodes(returns) == {"median": median, "worst": worst}


def test_an_episode_that_returns_something_else_is_told() -> None:
    assert difference(make_film(), 4.0 + 1e-9) == ""
    assert "returned 3 when it was scored and 4 when it was played again" in difference(make_film(), 3)


@pytest.mark.parametrize(("most", "every", "frames"), [(40, 1, 25), (20, 2, 13), (5, 2, 5)])
def test_long_episodes_are_filmed_every_second_frame_and_the_longest_in_part(
    monkeypatch: pytest.MonkeyPatch, most: int, every: int, frames: int
) -> None:
    monkeypatch.setattr(filming, "FRAMES", most)
    with closing(EnvConfig(TINY, size=32, render="gymnasium").make(filmed=True)) as env:
        recorder, seen = Recorder(env), []
        recorder.reset(seed=3)
        seen.append(env.screen())
        for step in range(24):
            recorder.step(1 + (env.env.unwrapped.x < 20) - (env.env.unwrapped.x > 20))  # stays in the middle
            assert env.steps == step + 1
            seen.append(env.screen())
    assert (recorder.every, len(recorder.screens)) == (every, frames)
    for image, screen in zip(recorder.screens, seen[::every], strict=False):
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(image)).convert("RGB")), screen)


def test_a_screen_has_its_own_resolution_where_the_agent_sees_a_smaller_picture() -> None:
    with closing(EnvConfig("CarRacing", size=32, render="gymnasium").make(filmed=True)) as env:
        frame, _ = env.reset(seed=0)
        assert (frame.shape, env.screen().shape) == ((32, 32, 3), (400, 600, 3))


class Unrendered(Odd):
    """Observes pictures, and says that it renders."""

    observation_space = IMAGE
    observe = Odd.picture
    render = gym.Env.render


class Modeless(Unrendered):
    def __init__(self) -> None:
        self.render_mode = None


class RendersNone(Unrendered):
    def render(self) -> Any:
        return None


@pytest.mark.parametrize("kind", [Unrendered, Modeless, RendersNone])
def test_an_environment_that_only_says_that_it_renders_is_filmed_by_its_observations(
    kind: type[Odd], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gym.registry, "Unfilmed-v0", EnvSpec("Unfilmed-v0", entry_point=kind))
    with closing(EnvConfig("Unfilmed-v0", size=32, render="gymnasium").make(filmed=True)) as env:
        recorder = Recorder(env)
        recorder.reset(seed=3)
        recorder.step(1)
        assert np.array_equal(env.screen(), env.env.unwrapped.picture())
    assert (recorder.size, len(recorder.screens)) == ((48, 32), 2)


def test_who_looks_at_the_screen_changes_nothing_that_the_agent_sees() -> None:
    """LunarLander's flames age whenever they are drawn."""
    config, frames = EnvConfig("LunarLander", render="gymnasium"), list[np.ndarray]()
    for looks in (0, 2):
        with closing(config.make(filmed=looks > 0)) as env:
            seen = [env.reset(seed=1)[0]]
            for _ in range(30):
                seen.append(env.step(2)[0])
                assert all(env.screen().shape == (400, 600, 3) for _ in range(looks))
        frames.append(np.stack(seen))
    assert np.array_equal(*frames)


def publish(folder: Path, films: list[Film], change: Callable[[Any], None] = lambda films: None) -> Artifact:
    folder.mkdir()
    save_films(folder, films)
    described = json.loads((folder / FILMS).read_text())
    change(described)
    (folder / FILMS).write_text(json.dumps(described))
    recipe = {"settings": {"agent": "controller"}, "inputs": {"evaluation": "e"}}
    fingerprint = manifest.sha256_json(recipe)
    body = {"kind": "film", "fingerprint": fingerprint, "metrics": {}, "provenance": PROVENANCE}
    manifest.write(folder, body | {"recipe": recipe}, [path.name for path in folder.iterdir()])
    return read(folder, "film")


def test_films_are_read_as_they_were_saved(tmp_path: Path) -> None:
    films = [make_film("median"), make_film("worst", 3, 1)]
    assert read_films(publish(tmp_path / "film", films)) == films
    played = films[0].played()
    assert (played.frames, played.last, played.every) == (5, 11, 2)
    assert "the first 8 of them, every second frame" in films[0].describe()


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("name", "../vae/weights", "median or worst"),
        ("sizes", [10, 11], "expected 2, up to the last frame"),
        ("sizes", [10, 11, 12, 13, 99], "add up to 145; expected 60"),
        ("actions", [3] * 8, "expected an integer from 0 to 2"),
        ("every", 0, "expected an integer from 1"),
        ("space", {"count": 0, "low": [0.0], "high": [1.0]}, "expected a list of 1 values"),
    ],
)
def test_edited_films_are_one_sentence(tmp_path: Path, key: str, value: Any, sentence: str) -> None:
    def change(films: Any) -> None:
        films[0][key] = value

    with pytest.raises(BadData, match=sentence):
        read_films(publish(tmp_path / "film", [make_film()], change))


def test_films_share_the_room_of_a_page(tmp_path: Path) -> None:
    def summary(size: int) -> RunSummary:
        film = replace(make_film(frames=100, every=1), sizes=[size] * 100, screen=bytes(100 * size))
        return RunSummary(tmp_path, {}, {}, [], None, [], films=[film])

    small, large, larger = (summary.films[0] for summary in fit_films([summary(1000), summary(15000), summary(30000)]))
    assert len(small.sizes) == 100
    assert len(large.screen) + len(larger.screen) + len(small.screen) <= FILM_ROOM
    assert len(large.screen) == pytest.approx(len(larger.screen), abs=30000)
    assert len(large.actions) == len(large.sizes) - 1
