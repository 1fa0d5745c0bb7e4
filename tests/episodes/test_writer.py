import json
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.conftest import RECIPE, make_episode
from wm.artifacts import durable, manifest
from wm.episodes import schema
from wm.episodes.dataset import Dataset
from wm.episodes.parts import STAGING, write_part
from wm.episodes.shards import FrameShard
from wm.episodes.writer import Writer, create


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 70)


def collect(path: Path, upto: int) -> None:
    if not path.exists():
        create(path, RECIPE)
    with Writer(path, RECIPE) as writer:
        for index in range(writer.next, upto):
            writer.add(make_episode(index, rows=12 + index % 5).pack())


def bytes_of(path: Path) -> dict[str, bytes]:
    files = (file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def test_a_dataset_collected_in_two_goes_is_the_same_bytes_as_in_one(tmp_path: Path) -> None:
    collect(tmp_path / "one.zarr", 23)
    for upto in (3, 4, 11, 23):
        collect(tmp_path / "two.zarr", upto)
    one, two = bytes_of(tmp_path / "one.zarr"), bytes_of(tmp_path / "two.zarr")
    assert one == two
    assert len([name for name in one if name.endswith("frames/zarr.json")]) > 3


def test_a_short_part_is_superseded_by_a_longer_one(tmp_path: Path) -> None:
    collect(tmp_path / "d.zarr", 2)
    assert [part.folder.name for part in Dataset.open(tmp_path / "d.zarr").parts] == ["part-000000-000002"]
    collect(tmp_path / "d.zarr", 4)
    assert sorted(p.name for p in (tmp_path / "d.zarr").glob("part-*")) == ["part-000000-000004"]


def test_nothing_is_lost_when_the_removal_of_the_short_part_was_killed(tmp_path: Path) -> None:
    collect(tmp_path / "d.zarr", 2)
    write_part(tmp_path / "d.zarr", RECIPE, [make_episode(k, rows=12 + k % 5) for k in range(4)])
    assert Dataset.open(tmp_path / "d.zarr").episodes == 4
    collect(tmp_path / "d.zarr", 5)
    assert sorted(p.name for p in (tmp_path / "d.zarr").glob("part-*")) == ["part-000000-000005"]


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
    assert np.array_equal(FrameShard(part.folder).chunk(0), frames)


def test_an_all_black_chunk_is_written_all_the_same(tmp_path: Path) -> None:
    create(tmp_path / "d.zarr", RECIPE)
    episode = make_episode(0)
    episode.frames[:] = 0
    write_part(tmp_path / "d.zarr", RECIPE, [episode])
    (part,) = Dataset.open(tmp_path / "d.zarr").parts
    assert (part.folder / "frames" / "c.0.0.0.0").exists()


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_commit_that_fails_at_any_call_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "d.zarr"
    collect(path, 2)
    before = bytes_of(path)
    real = getattr(durable.os, call)
    for nth in range(1, 40):
        calls = 0

        def failing(*arguments: object, nth: int = nth) -> object:
            nonlocal calls
            calls += 1
            if calls == nth:
                raise OSError(5, "Input/output error")
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(durable.os, call, failing)
            try:
                write_part(path, RECIPE, [make_episode(k) for k in (2, 3)])
            except OSError:
                committed = (path / "part-000002-000004").exists()
                dataset = Dataset.open(path)
                assert dataset.episodes == (4 if committed else 2)
                manifest.verify(dataset.parts[0].folder, "part")
                if committed:
                    durable.remove_folder(path / "part-000002-000004")
                continue
            break
    else:
        pytest.fail("never succeeded")
    assert nth > (1 if call == "rename" else 5)
    after = bytes_of(path)
    assert all(after[name] == data for name, data in before.items())


def test_staging_is_swept(tmp_path: Path) -> None:
    collect(tmp_path / "d.zarr", 1)
    (tmp_path / "d.zarr" / STAGING / "torso").mkdir(parents=True)
    collect(tmp_path / "d.zarr", 2)
    assert not list((tmp_path / "d.zarr" / STAGING).iterdir())
