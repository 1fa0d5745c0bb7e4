import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wm.artifacts import disk as budget
from wm.artifacts import durable
from wm.artifacts.disk import DiskBudget
from wm.errors import DiskProblem, UsageProblem
from wm.units import format_size, parse_size


def test_sizes_are_read_and_shown() -> None:
    assert [parse_size(text) for text in ("500MB", "1.5 GB", "2kb", "7", "1GiB")] == [
        500_000_000, 1_500_000_000, 2000, 7, 1_000_000_000,
    ]  # fmt: skip
    assert format_size(1_500_000_000) == "1.5 GB"
    with pytest.raises(UsageProblem, match="'plenty'"):
        parse_size("plenty")


def test_the_limit_counts_what_is_there_already(tmp_path: Path) -> None:
    limited = DiskBudget(tmp_path, 1000)
    limited.require(400, 600, "this")
    with pytest.raises(DiskProblem, match=r"needs about 401 B .* only 400 B may be used; free some space"):
        limited.require(401, 600, "this")


def test_a_reserve_stays_free_and_the_targets_own_volume_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> Any:
        asked.append(path)
        return shutil._ntuple_diskusage(100 << 30, 0, 3 << 30)  # type: ignore[attr-defined]

    monkeypatch.setattr(shutil, "disk_usage", usage)
    (tmp_path / "link").symlink_to(tmp_path)
    assert DiskBudget(tmp_path / "link" / "not" / "yet").available(0) == 2 << 30
    assert asked == [tmp_path.resolve()]


def test_what_is_in_the_way_of_a_folder_or_a_file_is_named(tmp_path: Path) -> None:
    file, folder, other = tmp_path / "file", tmp_path / "folder", tmp_path / "other"
    file.write_text("x")
    for made in (folder, other):
        made.mkdir()
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: (file / "a" / "b").read_bytes(), f"{file} is a file where a folder is expected; remove or rename it."),
        (lambda: (file / "a").mkdir(parents=True), f"{file} is a file where a folder is expected"),
        (lambda: file.mkdir(exist_ok=True), f"{file} is a file where a folder is expected"),
        (lambda: folder.rename(file), f"{file} is a file where a folder is expected"),
        (folder.read_bytes, f"{folder} is a folder where a file is expected; remove or rename it."),
        (lambda: file.replace(other), f"{other} is a folder where a file is expected"),
        (lambda: (tmp_path / "missing").read_bytes(), ""),
    ]
    for call, sentence in calls:
        with pytest.raises(OSError, match=r".") as raised:
            call()
        found = budget.explain_misplaced(raised.value)
        assert found.startswith(sentence)
        assert bool(found) == bool(sentence)


def test_too_few_inodes_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "inodes_left", lambda path: 99)
    DiskBudget(tmp_path).require(1000, 0, "a thing", files=99)
    with pytest.raises(DiskProblem, match=r"needs about 100 inodes at .* but 99 are left"):
        DiskBudget(tmp_path).require(1000, 0, "a thing", files=100)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc takes no files")
def test_a_place_that_takes_no_files_is_named() -> None:
    with pytest.raises(
        DiskProblem, match=r"^a page has no place at /proc/x/y: /proc takes no files; give another place"
    ):
        DiskBudget(Path("/proc/x/y")).require(10, 0, "a page")
    with pytest.raises(DiskProblem, match=r"^/proc/x cannot be made: /proc takes no new files; give"):
        durable.make_folder(Path("/proc/x/y"))
    with pytest.raises(FileNotFoundError):
        durable.open_file(Path("/proc/x"), "rb")


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EROFS, "no permission for new files in {}: its volume is read-only; give another place."),
        (errno.EACCES, "no permission for new files in {}; change its permissions or give another place."),
        (errno.EPERM, "no permission for new files in {}; change its permissions or give another place."),
        (errno.ENOSPC, ""),
    ],
)
def test_what_is_not_permitted_is_told_of_a_folder_where_the_file_is_new(
    number: int, sentence: str, tmp_path: Path
) -> None:
    new = str(tmp_path / ".report.html.53ad2487.tmp")
    assert budget.explain_refused(OSError(number, os.strerror(number), new)) == sentence.format(tmp_path)
    (tmp_path / "old").touch()
    old = budget.explain_refused(OSError(number, os.strerror(number), str(tmp_path / "old")))
    assert old == sentence.replace("new files in {}", "{}/old").format(tmp_path)
    assert bool(budget.explain_refused(OSError(number, "why"))) == bool(sentence)


def test_a_link_to_nothing_is_named_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(FileExistsError) as raised:
        (tmp_path / "link").mkdir(parents=True, exist_ok=True)
    assert budget.explain_misplaced(raised.value) == (
        f"{tmp_path / 'link'} is a link to nothing; remove it, or give another path."
    )
