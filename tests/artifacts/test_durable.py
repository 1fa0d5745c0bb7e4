import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wm.artifacts import chained_log, durable, json_reader
from wm.episodes import archive
from wm.errors import BadData, DiskProblem
from wm.evolution import evolve
from wm.sweeps.journal import JournalFile
from wm.telemetry import metrics_log


def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    durable.write_json(path, {"b": 1})
    durable.write_json(path, {"b": 2})
    assert path.read_text() == '{\n "b": 2\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    durable.write_bytes(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        durable.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_log_of_unlikely_size_is_refused_unread(tmp_path: Path) -> None:
    readers: dict[str, Callable[[Path], object]] = {
        archive.PROVENANCE: archive.read_provenance,
        metrics_log.NAME: metrics_log.chained,
        evolve.LOG: lambda folder: chained_log.read(folder, evolve.LOG, evolve.LINE),
        "journal": lambda folder: JournalFile(folder / "journal", "remove it"),
    }
    for name, read in readers.items():
        with open(tmp_path / name, "wb") as file:
            file.truncate(1 << 41)
        with pytest.raises(BadData, match=rf"{name} has {1 << 41} bytes; expected at most {durable.LARGEST_LOG}"):
            read(tmp_path)
    with pytest.raises(BadData, match="has 2199023255552 bytes"):
        evolve.logged(tmp_path)


def test_a_line_that_is_appended_does_not_change_a_file_with_another_name(tmp_path: Path) -> None:
    path, snapshot = tmp_path / "log", tmp_path / "snapshot"
    durable.append(path, b"1\n")
    os.link(path, snapshot)
    for line in (b"2\n", b"3\n"):
        durable.append(path, line)
    assert (path.read_bytes(), snapshot.read_bytes()) == (b"1\n2\n3\n", b"1\n")


def test_a_folder_is_committed_by_one_rename(tmp_path: Path) -> None:
    staged = durable.make_folder(tmp_path / ".staging" / "x")
    (staged / "deep").mkdir()
    (staged / "deep" / "file").write_bytes(b"1")
    durable.commit_folder(staged, tmp_path / "final")
    assert (tmp_path / "final" / "deep" / "file").read_bytes() == b"1"
    assert not staged.exists()


def test_everything_is_synced_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story: list[str] = []
    monkeypatch.setattr(durable.os, "fsync", lambda _: story.append("fsync"))
    rename = durable.os.rename
    monkeypatch.setattr(durable.os, "rename", lambda a, b: (story.append("rename"), rename(a, b)))
    staged = tmp_path / "staged"
    staged.mkdir()
    (staged / "file").write_bytes(b"1")
    durable.commit_folder(staged, tmp_path / "final")
    assert story == ["fsync", "fsync", "rename", "fsync"]  # file, folder, commit, parent


def test_a_folder_of_many_files_has_them_all_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, set[int]()
    monkeypatch.setattr(durable.os, "fsync", lambda file: (synced.add(os.fstat(file).st_ino), real(file)))
    files = {f"deep/{number % 3}/{number}": b"%d" % number for number in range(50)}
    durable.write_folder(tmp_path / "folder", files)
    written = {path.stat().st_ino for path in (tmp_path / "folder").rglob("*") if path.is_file()}
    assert len(written) == 50
    assert written < synced
    assert {name: (tmp_path / "folder" / name).read_bytes() for name in files} == files


def test_a_file_that_cannot_be_synced_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        if os.fstat(file).st_size == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*c'"):
        durable.write_folder(tmp_path / "folder", {"a": b"1", "b": b"22", "c": b"333", "d": b"4444"})


@pytest.mark.skipif(os.name == "nt", reason="Windows has another limit")
def test_a_file_that_cannot_be_opened_beside_so_many_others_is_not_damaged(tmp_path: Path) -> None:
    import resource

    (tmp_path / "a").write_text("{}")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        with pytest.raises(DiskProblem, match=r"no more files can be opened, such as .*a \(Too many.*\); raise"):
            json_reader.read_small(tmp_path / "a")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_killed_processes_left_is_swept(tmp_path: Path) -> None:
    durable.staging_path(tmp_path / "vae").mkdir()
    durable.staging_path(tmp_path / "a.json").write_bytes(b"torso")
    (tmp_path / "keep").write_bytes(b"")
    durable.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["keep"]


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    for name in ("d[1]*", "d[1]-other", "d1"):
        durable.staging_path(tmp_path / name).mkdir()
    durable.sweep(tmp_path, "d[1]*")
    assert sorted(path.name.split(".")[1] for path in tmp_path.iterdir()) == ["d1", "d[1]-other"]
