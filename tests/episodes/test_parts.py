import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.conftest import RECIPE, make_episode, write_part
from tests.episodes.test_writer import bytes_of, collect
from wm.artifacts import durable, manifest
from wm.episodes.dataset import Dataset
from wm.episodes.writer import create


def test_a_part_is_one_shard_that_any_zarr_library_reads(tmp_path: Path) -> None:
    collect(tmp_path / "d.zarr", 3)
    (part,) = Dataset.open(tmp_path / "d.zarr").parts
    assert sorted(p.name for p in (part.folder / "frames").iterdir()) == ["c.0.0.0.0", "zarr.json"]
    meta = json.loads((part.folder / "frames" / "zarr.json").read_text())
    (sharding,) = meta["codecs"]
    assert [codec["name"] for codec in sharding["configuration"]["codecs"]] == ["bytes", "zstd", "crc32c"]
    assert sharding["configuration"]["codecs"][1]["configuration"]["level"] == 3
    group = zarr.open_group(tmp_path / "d.zarr", mode="r")
    frames = np.concatenate([make_episode(k, rows=12 + k % 5).frames for k in range(3)])
    stored = group[f"{part.folder.name}/frames"]
    assert np.array_equal(stored[...], frames)  # type: ignore[index]
    assert np.array_equal(Dataset.open(tmp_path / "d.zarr").shard(part, "frames").all(), frames)


def test_an_all_black_chunk_is_written_all_the_same(tmp_path: Path) -> None:
    create(tmp_path / "d.zarr", RECIPE)
    episode = make_episode(0)
    episode.frames[:] = 0
    write_part(tmp_path / "d.zarr", [episode])
    (part,) = Dataset.open(tmp_path / "d.zarr").parts
    assert (part.folder / "frames" / "c.0.0.0.0").exists()


def test_a_part_is_synced_in_staging_and_appears_whole(tmp_path: Path) -> None:
    path, synced, staged = tmp_path / "d.zarr", set[int](), set[int]()
    collect(path, 2)

    def noting_parts() -> None:
        for folder in path.glob("part-*"):
            assert (folder / manifest.NAME).exists(), f"{folder.name} exists before it is whole"
            manifest.verify(folder, "part")

    def fsync(descriptor: int, real: Callable[[int], None] = os.fsync) -> None:
        noting_parts()
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    def rename(source: Path, target: Path, real: Callable[[Path, Path], None] = os.rename) -> None:
        staged.update(entry.stat().st_ino for entry in [source, *source.rglob("*")])
        assert staged <= synced, f"{source.name} is renamed before it is synced"
        real(source, target)
        noting_parts()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "rename", rename)
        folder = write_part(path, [make_episode(k) for k in (2, 3)])
    assert len(staged) == 15, "the part, its zarr.json and manifest; four arrays with two files each"
    assert {entry.stat().st_ino for entry in [folder, *folder.rglob("*")]} == staged


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_commit_that_fails_at_any_call_leaves_the_other_parts_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "d.zarr"
    collect(path, 2)
    before = bytes_of(path)
    real = getattr(durable.os, call)
    for nth in range(1, 40):
        calls = itertools.count(1)  # one number a call, in whichever thread

        def failing(*arguments: object, nth: int = nth, calls: Iterator[int] = calls) -> object:
            if next(calls) == nth:
                raise OSError(5, "Input/output error")
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(durable.os, call, failing)
            try:
                write_part(path, [make_episode(k) for k in (2, 3)])
            except OSError:
                committed = (path / "part-000002-000004").exists()
                dataset = Dataset.open(path)
                assert dataset.episodes == (4 if committed else 2)
                manifest.verify(dataset.parts[0].folder, "part")
                if committed:
                    durable.remove(path / "part-000002-000004")
                continue
            break
    else:
        pytest.fail("never succeeded")
    assert nth > (1 if call == "rename" else 5)
    after = bytes_of(path)
    assert all(after[name] == data for name, data in before.items())
