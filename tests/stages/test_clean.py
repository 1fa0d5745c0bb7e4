import json
from pathlib import Path

import pytest

from tests.conftest import write_dataset
from tests.stages.conftest import Output
from wm.artifacts import locks
from wm.episodes import schema
from wm.episodes.committed_parts import QUARANTINE
from wm.episodes.dataset import Dataset


def litter(workspace: Path) -> None:
    for name in (".staging/abc/frames", f"{QUARANTINE}/part-000090-000091"):
        (workspace / "data" / "d.zarr" / name).mkdir(parents=True)
    (workspace / "data" / "d.zarr" / ".staging" / "abc" / "frames" / "c.0").write_bytes(bytes(1000))
    (workspace / "data" / "d.zarr" / QUARANTINE / "part-000090-000091" / "c.0").write_bytes(bytes(300))
    (workspace / "data" / ".d.zarr.0123abcd.tmp").mkdir()
    (workspace / "runs" / "X" / "vae.partial").mkdir(parents=True)
    (workspace / "runs" / "X" / "vae.partial" / "weights").write_bytes(bytes(50))
    (workspace / "runs" / "X" / "vae.partial" / ".m.0123abcd.tmp").write_bytes(bytes(7))


def test_clean_removes_orphans_alone_and_says_what_more_could_go(workspace: Path, output: Output) -> None:
    litter(workspace)
    assert json.loads(output("clean", "--dry-run", "--json"))["bytes"] == 1000
    assert (workspace / "data" / "d.zarr" / ".staging").exists()
    text = output("clean")
    assert "freed 1.0 kB" in text
    assert "300 B more with --quarantine" in text
    assert "57 B more with --unfinished" in text
    assert not (workspace / "data" / "d.zarr" / ".staging").exists()
    assert (workspace / "runs" / "X" / "vae.partial" / "weights").exists()
    assert "freed 357 B" in output("clean", "--quarantine", "--unfinished")
    assert Dataset.open(workspace / "data" / "d.zarr").episodes == 20


def test_clean_leaves_what_a_running_process_holds(workspace: Path, output: Output) -> None:
    litter(workspace)
    with locks.exclusive(workspace / "data" / "d.zarr"):
        assert "a running process holds its lock" in output("clean")
        assert "data/d.zarr/.staging" in json.loads(output("clean", "--json"))["in_use"]
    assert (workspace / "data" / "d.zarr" / ".staging" / "abc").exists()


def test_a_dataset_without_a_part_is_still_readable_when_its_quarantine_was_cleaned(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    write_dataset(workspace / "data" / "e.zarr", 9)
    (workspace / "data" / "e.zarr" / "part-000003-000006" / "zarr.json").write_bytes(b"?")
    output("verify", "data/e.zarr", "--repair")
    assert Dataset.open(workspace / "data" / "e.zarr").missing == [(3, 6)]
    output("clean", "--quarantine")
    assert Dataset.open(workspace / "data" / "e.zarr").missing == [(3, 6)]
    assert "more with --quarantine" not in output("clean")
