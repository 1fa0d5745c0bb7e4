"""Every write, fsync, rename and mkdir of collecting fails once; in the quick suite every eighth."""

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import collect, episodes_in, files_of
from wm.artifacts import durable
from wm.episodes import repair
from wm.episodes.parts import PartBuilder

ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


class Faults:
    """Counts the calls and raises at the n-th."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, number: int) -> None:
        self.calls, self.at, self.number, self.hit = itertools.count(1), at, number, ""
        for name in ("fsync", "rename", "replace", "mkdir"):
            monkeypatch.setattr(os, name, self.failing(name, getattr(os, name)))
        monkeypatch.setattr(durable, "open", self.open, raising=False)

    def count(self, name: str) -> None:
        if next(self.calls) == self.at:  # one number a call, in whichever thread
            self.hit = name
            raise OSError(self.number, os.strerror(self.number), name)

    def failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.count(name)
            return real(*arguments, **named)

        return call

    def open(self, *arguments: Any, **named: Any) -> Any:
        file = open(*arguments, **named)  # noqa: SIM115
        if file.writable():
            try:
                self.count("write")
            except OSError:
                file.write((b"x" if "b" in file.mode else "x") * 3)  # half a write, then the error
                file.close()
                raise
        return file


def note_commits(patch: pytest.MonkeyPatch, acknowledged: list[Path]) -> None:
    commit = PartBuilder.commit

    def noting(builder: PartBuilder, allow: Callable[[int], None] | None) -> Path:
        folder = commit(builder, allow)
        acknowledged.append(folder)
        return folder

    patch.setattr(PartBuilder, "commit", noting)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("errors", "stride"),
    [
        pytest.param(ERRORS, 8, id="in turn"),
        *(pytest.param((number,), 1, id=errno.errorcode[number], marks=pytest.mark.slow) for number in ERRORS),
    ],
)
def test_a_failing_call_loses_nothing_and_says_so(
    tmp_path: Path, errors: tuple[int, ...], stride: int, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, old = tmp_path / "whole.zarr", tmp_path / "old.zarr"
    assert collect(whole) == 0
    assert collect(old, 5) == 0
    hit: dict[str, int] = {}
    for at, number in zip(range(1, 400, stride), itertools.cycle(errors), strict=False):
        path = tmp_path / f"{at}.zarr"
        shutil.copytree(old, path)
        before = files_of(path)
        acknowledged: list[Path] = []
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            note_commits(patch, acknowledged)
            faults = Faults(patch, at, number)
            code = collect(path)
        if not faults.hit:
            break
        hit[faults.hit] = hit.get(faults.hit, 0) + 1
        message = capsys.readouterr().err
        if code:  # provenance and the lock's owner file may fail without harm
            assert code == 74, message
            assert os.strerror(number) in message
            assert message.count("\n") <= 3
        assert not [checked.problem for checked in repair.check(path) if checked.problem]
        after = files_of(path)
        assert episodes_in(path) >= max([5, *(int(folder.name[-6:]) for folder in acknowledged)])
        assert all(after[name] == data for name, data in before.items() if "part-000000" in name or "/" not in name)
        assert collect(path) == 0
        assert files_of(path) == files_of(whole), f"call {at}, {faults.hit}"
    else:
        pytest.fail("never succeeded")
    assert stride > 1 or set(hit) == {"write", "fsync", "rename", "replace", "mkdir"}
    assert sum(hit.values()) * stride > 80
