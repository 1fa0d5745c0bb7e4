"""A dataset that was really collected, and the output of commands in its folder."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.cli import run
from tests.conftest import RECIPE, make_episode
from wm.episodes.writer import Writer, create

Output = Callable[..., str]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 80 columns in place of stderr and stdout."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return stream


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with `data/d.zarr` of 20 episodes; its policy's name is hostile."""
    monkeypatch.chdir(tmp_path)
    recipe = {**RECIPE, "policy": "<b>sticky</b>", "seed": 3}
    with Writer(create(tmp_path / "data" / "d.zarr", recipe)) as writer:
        for index in range(20):
            writer.add(make_episode(index, rows=10 + index).pack())
    return tmp_path


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    """Runs a command: its stdout, or its stderr where another exit code than 0 is expected."""

    def of(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run(list(words)) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return of
