"""A small dataset, collected within this process, so that its system calls can be made to fail."""

from pathlib import Path

import pytest

from stages.cli import run
from stages.session import Session
from tests.conftest import IN_PROCESS, TINY
from wm.episodes import schema
from wm.episodes.dataset import Dataset

EPISODES = 12


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages play in this process, and parts are small."""
    monkeypatch.setattr(Session, "runtime", IN_PROCESS)
    monkeypatch.setattr(schema, "PART_ROWS", 60)


def collect(path: Path, episodes: int = EPISODES, *more: str) -> int:
    """The exit code of `wm collect`."""
    return run(["collect", "--env", TINY, "--episodes", str(episodes), "--size", "32", "--data", str(path), *more])


def files_of(path: Path) -> dict[str, bytes]:
    """Every committed file of a dataset, except its provenance."""
    committed = [path / "manifest.json", path / "zarr.json", *path.glob("part-*/**/*")]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in committed if file.is_file()}


def episodes_in(path: Path) -> int:
    """How many episodes a reader can open; 0 without a dataset."""
    return Dataset.open(path).episodes if (path / "manifest.json").exists() else 0
