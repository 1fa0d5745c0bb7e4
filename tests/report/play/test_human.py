"""A person plays the real game: here a script holds the keys."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.cli import run
from tests.conftest import TINY, outcome
from tests.tiny import TinyEnv
from wm.actions import ActionSpace
from wm.artifacts.disk import DiskBudget
from wm.envs.registry import EnvConfig
from wm.episodes.archive import claim
from wm.episodes.dataset import Dataset
from wm.errors import DiskProblem, EnvironmentFault, Stopped
from wm.report.play.controls import controls_for
from wm.report.play.human import SIDE, Person, fitted, record_person
from wm.rollouts.collection import HUMAN, describe
from wm.rollouts.loop import EpisodeJob
from wm.runtime import Runtime

PICTURE = np.zeros((64, 64, 3), np.uint8)


class Script:
    """A window that holds keys, one after the other, and is closed after `shows` frames."""

    def __init__(self, keys: Sequence[str], shows: int) -> None:
        self._keys, self.left, self.shown = keys, shows, list[NDArray[np.uint8]]()

    @property
    def open(self) -> bool:
        return self.left >= 0

    def show(self, frame: NDArray[np.uint8]) -> None:
        self.left -= 1
        self.shown.append(frame)

    def keys(self) -> Sequence[str]:
        key = self._keys[(len(self.shown) - 1) % len(self._keys)]
        return [key] if key else []

    def wait(self, seconds: float) -> None:
        """As fast as the game goes."""


def play(folder: Path, script: Script, episodes: int, budget: DiskBudget | None = None, **runs: Any) -> int:
    """How many episodes the script plays to their end."""
    collection, recipe = describe(EnvConfig(TINY, 32), HUMAN, 3, 0)
    controls = controls_for(TINY, ActionSpace.from_json(recipe["action_space"]))
    path, runtime = folder / "d.human.zarr", Runtime(time.monotonic, **runs)
    with claim(path, recipe, False, runtime.log) as claimed:
        limit = budget or DiskBudget(path)
        return record_person(collection, claimed, episodes, limit, script, controls, 1000, runtime)


def actions(folder: Path) -> Iterator[list[int]]:
    dataset = Dataset.open(folder / "d.human.zarr")
    for part in dataset.parts:
        for episode in dataset.episodes_of(part):
            yield episode.actions[:-1].tolist()


def test_keys_become_actions_of_an_ordinary_dataset(tmp_path: Path) -> None:
    script = Script(["1", "", "3", "2"], 10_000)
    assert play(tmp_path, script, 3) == 3
    dataset = Dataset.open(tmp_path / "d.human.zarr")
    assert (dataset.episodes, dataset.recipe["policy"]) == (3, "human")
    played = list(actions(tmp_path))
    cycle = [0, 0, 2, 1] * 100
    assert list(chain.from_iterable(played)) == cycle[: sum(map(len, played))]
    env = EnvConfig(TINY, 32).make(filmed=True)
    env.reset(seed=int(dataset.table["seed"][0]))
    side = env.screen().shape[0]
    assert script.shown[0].shape == (SIDE // side * side, SIDE // side * side, 3)
    assert (script.shown[0] == fitted(env.screen())).all()


def test_what_the_game_raises_is_one_sentence_and_finished_episodes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TinyEnv.step

    def breaking(env: TinyEnv, action: Any) -> Any:
        if any(tmp_path.glob("*.zarr/part-*")):
            raise RuntimeError("the simulator is gone")
        return step(env, action)

    monkeypatch.setattr(TinyEnv, "step", breaking)
    with pytest.raises(EnvironmentFault, match=r"Tiny-v0 raised .*the simulator is gone.* during an episode; fix"):
        play(tmp_path, Script(["2"], 10_000), 9)
    assert Dataset.open(tmp_path / "d.human.zarr").episodes == 1


def test_steps_come_at_the_pace_and_late_ones_are_not_caught_up() -> None:
    now, waits = 0.0, list[float]()

    class Clocked(Script):
        def wait(self, seconds: float) -> None:
            nonlocal now
            waits.append(seconds)
            now += max(seconds, 0)

    space = ActionSpace(count=3)
    person = Person(Clocked(["1"], 99), lambda: PICTURE, controls_for(TINY, space), space, 10, Runtime(lambda: now))
    person.begin(0, EpisodeJob(0, 0))
    for late in (0, 0, 0.35, 0, 0):
        now += late
        assert person.act(np.zeros((1, 32, 32, 3), np.uint8), [{}]) == [0]
    assert waits == pytest.approx([0.1, 0.1, -0.25, 0, 0.1])


@pytest.mark.parametrize(
    ("height", "width", "shown"),
    [(210, 160, (630, 480)), (400, 600, (400, 600)), (64, 64, (640, 640)), (1080, 1920, (360, 640))],
)
def test_a_picture_of_any_size_fits_and_keeps_its_proportions(height: int, width: int, shown: tuple[int, int]) -> None:
    assert fitted(np.zeros((height, width, 3), np.uint8)).shape == (*shown, 3)


def test_the_stored_frames_are_those_of_a_policy_that_sees_none(tmp_path: Path) -> None:
    """Rendering for the person changes neither the game nor what is stored of it."""
    assert play(tmp_path, Script(["2"], 10_000), 1) == 1
    dataset = Dataset.open(tmp_path / "d.human.zarr")
    (episode,) = dataset.episodes_of(dataset.parts[0])
    env = EnvConfig(TINY, 32).make()
    frames = [env.reset(seed=episode.seed)[0]] + [env.step(int(action))[0] for action in episode.actions[:-1]]
    assert (np.stack(frames) == episode.frames).all()


def test_more_episodes_continue_and_an_unfinished_one_is_dropped(tmp_path: Path) -> None:
    assert play(tmp_path, Script(["2"], 10_000), 1) == 1
    (first,) = actions(tmp_path)
    script = Script(["2"], len(first) + 5)
    done = play(tmp_path, script, 50)
    assert 0 <= done < 50
    assert not script.open
    kept = list(actions(tmp_path))
    assert len(kept) == 1 + done
    assert kept[0] == first


def test_a_signal_ends_the_game_after_the_current_step(tmp_path: Path) -> None:
    script = Script(["2"], 10_000)

    def raise_if_stopped() -> None:
        if len(script.shown) == 3:
            raise Stopped(signal.SIGINT)

    with pytest.raises(Stopped):
        play(tmp_path, script, 1, raise_if_stopped=raise_if_stopped)
    assert len(script.shown) == 3
    assert not (tmp_path / "d.human.zarr").exists()


def test_a_window_closed_at_once_writes_nothing(tmp_path: Path) -> None:
    assert play(tmp_path, Script(["2"], 0), 2) == 0
    assert not (tmp_path / "d.human.zarr").exists()


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DiskProblem):
        play(tmp_path, Script(["2"], 10_000), 2, DiskBudget(tmp_path, 10))
    assert not (tmp_path / "d.human.zarr").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows always has a display")
def test_without_a_display_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    done = outcome(tmp_path, "play", "--env", TINY, "--real")
    assert done.returncode == 64
    assert "--real needs a window, but there is no display" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have a display")
def test_a_display_that_nobody_sees_is_refused(tmp_path: Path) -> None:
    done = outcome(tmp_path, "play", "--env", TINY, "--real", DISPLAY=":77")
    assert done.returncode == 64
    assert re.search("--real needs a window, but (the display cannot be opened|pygame cannot open one)", done.stderr)
    assert not list(tmp_path.rglob("*.zarr"))


class Shown(Script):
    """A script in place of a window."""

    def __enter__(self) -> "Shown":
        return self

    def __exit__(self, *raised: object) -> None:
        """Nothing is to be closed."""


def play_here(monkeypatch: pytest.MonkeyPatch, script: Shown, *words: str) -> int:
    """The exit code of `wm play --real`, where the script is the window."""
    monkeypatch.setattr("wm.pipeline.play.why_no_window", lambda: "")
    monkeypatch.setattr("wm.pipeline.play.Window", lambda title: script)
    monkeypatch.setattr("wm.pipeline.play.measure_pace", lambda env: (1000, 24))
    return run(["play", "--real", "--env", TINY, "--data", "d.human.zarr", *words])


def recorded() -> list[int]:
    """Up to how many episodes there were after each session, as `wm info` tells it."""
    lines = Path("d.human.zarr/provenance.jsonl").read_text().splitlines()
    return [json.loads(line)["episodes"] for line in lines]


def test_every_session_is_recorded_with_all_episodes_that_there_are_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert play_here(monkeypatch, Shown(["2"], 10_000), "--episodes", "1") == 0
    assert play_here(monkeypatch, Shown(["2"], 10_000), "--episodes", "2") == 0
    assert recorded() == [1, 3]

    class Stopping(Shown):
        def show(self, frame: NDArray[np.uint8]) -> None:
            super().show(frame)
            if Dataset.open(Path("d.human.zarr")).collected == 4:
                raise Stopped(signal.SIGINT)

    assert play_here(monkeypatch, Stopping(["2"], 10_000), "--episodes", "9") == 130
    assert recorded() == [1, 3, 4]


def test_a_person_is_told_which_actions_have_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    eleven = controls_for("other", ActionSpace(count=11))
    monkeypatch.setattr("wm.pipeline.play.controls_for", lambda env, space: eleven)
    assert play_here(monkeypatch, Shown(["2"], 0)) == 64
    told = capsys.readouterr().err.splitlines()
    assert told[8:11] == ["9: action 8", "no key: action 9", "no key: action 10"]
