"""Disks that are too small: sizes and numbers of inodes swept on a tmpfs, from too small to enough."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import EPISODES, collect, episodes_in, files_of
from wm.artifacts import durable
from wm.artifacts.disk import DiskBudget
from wm.episodes import repair
from wm.episodes.index import NAME as INDEX


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder where a tmpfs may be mounted."""
    if not sys.platform.startswith("linux") or os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs Linux, root and mount")
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True).returncode:
        pytest.skip("may not mount a tmpfs here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def resize(disk: Path, size: int, inodes: int = 1000) -> None:
    options = f"remount,size={size},nr_inodes={inodes}"
    subprocess.run(["mount", "-o", options, disk], check=True)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("what", ["bytes", pytest.param("inodes", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "warned",
    [
        pytest.param(True, id="with the estimate", marks=pytest.mark.slow),
        pytest.param(False, id="without the estimate"),
    ],
)
def test_a_disk_that_fills_up_stops_cleanly_and_more_space_completes(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    what: str, warned: bool,
) -> None:  # fmt: skip
    whole = tmp_path / "whole.zarr"
    assert collect(whole) == 0
    need = durable.folder_size(whole)
    if not warned:
        monkeypatch.setattr(DiskBudget, "require", lambda *_: None)
        monkeypatch.setattr(DiskBudget, "available", lambda *_: 1 << 40)
    path, codes = disk / "d.zarr", []
    for step in range(1, 40):
        (disk / "d.zarr").exists() and shutil.rmtree(path)
        for leftover in disk.glob(".*"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        size, inodes = (4096 * (1 + 6 * step), 1000) if what == "bytes" else (64 << 20, 8 * step)
        resize(disk, size, inodes)
        capsys.readouterr()
        codes.append(collect(path))
        if codes[-1] == 0:
            break
        errors = capsys.readouterr().err
        assert codes[-1] == 74, errors
        assert ("inodes" if what == "inodes" else "") in errors
        if (path / "manifest.json").exists():
            assert not [checked.problem for checked in repair.check(path) if checked.problem]
        kept = episodes_in(path)
        resize(disk, 64 << 20)
        assert collect(path) == 0
        assert episodes_in(path) == EPISODES >= kept
        assert files_of(path) == files_of(whole)
    else:
        pytest.fail("never enough")
    assert len(codes) > 3, "the sweep began too late"
    assert need < 64 << 20


@pytest.mark.usefixtures("in_process")
def test_the_budget_is_that_of_the_target_through_a_link(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resize(disk, 20 * 4096)
    (tmp_path / "data").symlink_to(disk)
    assert collect(tmp_path / "data" / "d.zarr") == 74
    assert "may be used" in capsys.readouterr().err
    assert not (disk / "d.zarr").exists()


@pytest.mark.usefixtures("in_process")
def test_the_budget_holds_even_if_the_estimate_was_far_too_low(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.zarr"
    assert collect(tmp_path / "whole.zarr") == 0
    limit = durable.folder_size(tmp_path / "whole.zarr") // 2
    monkeypatch.setattr(DiskBudget, "require", lambda *_: None)
    assert collect(path, EPISODES, "--disk-budget", str(limit)) == 74
    assert "is used up after" in capsys.readouterr().err
    assert 0 < episodes_in(path) < EPISODES
    assert durable.folder_size(path) - (path / INDEX).stat().st_size <= limit
    assert collect(path) == 0
    assert files_of(path) == files_of(tmp_path / "whole.zarr")
