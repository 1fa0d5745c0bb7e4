"""What an environment warns of at every step, in every process, is told once."""

import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import command, environment
from wm.envs.shown_warnings import LEFT_OUT, MOST, ShownOnce


class OldPhysics(RuntimeWarning):
    """As that of a package, which a process without it cannot import."""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    lines: list[Any] = []
    monkeypatch.setattr(warnings, "showwarning", ShownOnce(lambda *warned: lines.append(warned[:2])))
    warnings.simplefilter("always")
    return lines


def test_equal_warnings_are_shown_once_in_one_line_without_colours(shown: list[Any]) -> None:
    for _ in range(3):
        warnings.warn("\x1b[33mthe physics\n is old\x1b[0m", stacklevel=1)
        warnings.warn("the wind is new", OldPhysics, stacklevel=1)
    assert shown == [("the physics is old", UserWarning), ("OldPhysics: the wind is new", RuntimeWarning)]


def test_a_line_that_warns_of_a_number_is_shown_a_few_times(shown: list[Any]) -> None:
    for _ in range(2):
        for time in range(100):
            warnings.warn(f"at {time} s", stacklevel=1)
    assert [text for text, _ in shown] == [*(f"at {time} s" for time in range(MOST - 1)), f"at {MOST - 1} s{LEFT_OUT}"]


@pytest.mark.parametrize(("name", "lines"), [("Warns", 1), pytest.param("WarnsOfTime", MOST, marks=pytest.mark.slow)])
def test_a_command_with_workers_shows_what_is_warned_of_at_every_step_once(
    name: str, lines: int, tmp_path: Path
) -> None:
    words = command("collect", "--env", f"tests.odd_envs:{name}-v0", "--episodes", "4", "--size", "32")
    done = subprocess.run(
        words, cwd=tmp_path, env=environment(WM_WORKERS="2"), capture_output=True, text=True, check=True
    )
    told = [line for line in done.stderr.splitlines() if "physics" in line]
    assert len(told) == lines, done.stderr
    assert told[0].startswith("warning: UserWarning: the physics is old")
    assert ("odd_envs.py, line " in told[0], LEFT_OUT in told[-1]) == (True, lines == MOST)
