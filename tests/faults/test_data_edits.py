"""`wm data` while system calls fail, and killed at any moment: there is a whole dataset, or none."""

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from stages.cli import run
from tests.conftest import command, environment, write_dataset
from tests.faults.conftest import files_of
from tests.faults.test_system_calls import Faults
from wm.episodes import schema
from wm.episodes.dataset import Dataset
from wm.episodes.schema import SUFFIX

EPISODES = {"a.zarr": 5, "b.zarr": 3, "c.zarr": 2}
WORDS = ("data", "split", "a.zarr", "--at", "3", "--out-first", "b.zarr", "--out-rest", "c.zarr")


def datasets(folder: Path) -> dict[str, int]:
    """What a reader of the folder sees: the datasets and their episodes."""
    visible = [path for path in folder.iterdir() if path.suffix == SUFFIX and not path.name.startswith(".")]
    return {path.name: Dataset.open(path).episodes for path in visible}


def require_whole_or_none(folder: Path, source: dict[str, bytes]) -> None:
    assert datasets(folder).items() <= EPISODES.items()
    assert {name.partition("-")[0] for name in os.listdir(folder) if not name.startswith(".")} <= set(EPISODES)
    assert files_of(folder / "a.zarr") == source


@pytest.mark.parametrize("stride", [47, pytest.param(1, marks=pytest.mark.slow)])
def test_a_failing_call_leaves_whole_datasets_alone_and_the_same_command_writes_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stride: int
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    monkeypatch.setattr("wm.artifacts.provenance.commit", lambda: None)  # a process of git, again and again
    made = 0
    for at in range(1, 400, stride):
        folder = tmp_path / str(at)
        folder.mkdir()
        monkeypatch.chdir(folder)
        source = files_of(write_dataset(folder / "a.zarr", 5))
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(patch, at, errno.ENOSPC)
            code = run([*WORDS])
        if not faults.hit:
            break
        made += 1
        message = capsys.readouterr().err
        assert code in (0, 74), message  # an index and the lock's owner file may fail without harm
        assert not code or os.strerror(errno.ENOSPC) in message
        require_whole_or_none(folder, source)
        assert run([*WORDS]) == 0
        assert datasets(folder) == EPISODES
        assert not [path for path in folder.iterdir() if path.suffix == ".tmp"]
    else:
        pytest.fail("never succeeded")
    assert made * stride > 40


@pytest.mark.slow
def test_killed_at_any_moment_it_leaves_whole_datasets_or_none(tmp_path: Path) -> None:
    source = files_of(write_dataset(tmp_path / "a.zarr", 5))
    process = subprocess.Popen(command(*WORDS), cwd=tmp_path, env=environment())
    began = time.monotonic()
    assert process.wait() == 0
    lasted, kills = time.monotonic() - began, 25
    for number in range(kills):
        for name in ("b.zarr", "c.zarr"):
            if (tmp_path / name).exists():
                (tmp_path / name).rename(tmp_path / f"{name}-{number}")
        process = subprocess.Popen(command(*WORDS), cwd=tmp_path, env=environment())
        time.sleep(lasted * (0.4 + 0.6 * number / kills))
        process.send_signal(signal.SIGKILL)
        process.wait()
        require_whole_or_none(tmp_path, source)
    assert subprocess.run(command(*WORDS), cwd=tmp_path, env=environment()).returncode == 0
    assert datasets(tmp_path) == EPISODES
    assert not list(tmp_path.glob(".*.tmp"))
