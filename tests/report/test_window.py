"""The window of `wm play --real`, with SDL's driver that draws on no screen; keys are pressed by a script."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY, outcome
from tests.report.unseen_window import SCRIPT, serve_unseen
from wm.episodes.dataset import Dataset
from wm.report import window
from wm.report.window import Window

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems show every window")


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Windows are opened without a display."""
    monkeypatch.setattr(window, "_serve", serve_unseen)
    monkeypatch.setenv("DISPLAY", ":0")
    yield monkeypatch
    assert not multiprocessing.active_children()


def shown(opened: Window, side: int = 64) -> list[str]:
    """The keys that are held once a frame has been shown."""
    before = list(opened.keys())
    opened.show(np.zeros((side, side, 3), np.uint8))
    until = time.monotonic() + 20
    while opened.open and list(opened.keys()) == before and time.monotonic() < until:
        opened.wait(0.02)
    return list(opened.keys())


def test_keys_are_held_until_they_go_up_and_have_the_names_of_browsers(unseen: pytest.MonkeyPatch) -> None:
    unseen.setenv(SCRIPT, "left,space,-left a,-space -a,close")
    with Window("Tiny") as opened:
        assert opened.open
        assert [shown(opened) for _ in range(4)] == [["ArrowLeft"], ["ArrowLeft", " "], [" ", "a"], []]
        shown(opened)
        assert not opened.open
        opened.show(np.zeros((8, 8, 3), np.uint8))  # nobody is there; nothing happens
        assert opened.keys() == []


def test_ctrl_c_is_for_the_program_alone_and_the_window_ends_with_it(unseen: pytest.MonkeyPatch) -> None:
    unseen.setenv(SCRIPT, "right,up")
    with Window("Tiny") as opened:
        assert shown(opened) == ["ArrowRight"]
        assert opened._process.pid
        os.kill(opened._process.pid, signal.SIGINT)
        assert shown(opened) == ["ArrowRight", "ArrowUp"]
    assert opened._process.exitcode == 0


def test_a_person_plays_the_real_game_and_closing_the_window_ends_it(
    unseen: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unseen.setenv(SCRIPT, ",".join(["3", *[""] * 200]))
    done = outcome(tmp_path, "play", "--env", TINY, "--real", "--episodes", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "data/tests.tiny-Tiny-v0.human.zarr"
    assert "3: action 2" in done.stderr
    dataset = Dataset.open(tmp_path / done.stdout.strip())
    assert (dataset.episodes, dataset.recipe["policy"]) == (2, "human")
    for episode in dataset.episodes_of(dataset.parts[0]):
        assert set(episode.actions[3:-1].tolist()) <= {2}
    unseen.setenv(SCRIPT, ",".join(["2", *[""] * 3, "close"]))
    done = outcome(tmp_path, "play", "--env", TINY, "--real", "--episodes", "2")
    assert (done.returncode, "no episode was played to its end" in done.stderr) == (64, True)
    assert Dataset.open(tmp_path / "data/tests.tiny-Tiny-v0.human.zarr").episodes == 2
