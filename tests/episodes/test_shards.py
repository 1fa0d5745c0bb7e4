import json
import os
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import tensorstore
import zarr
import zstandard

from wm.artifacts import durable
from wm.episodes.shards import METADATA, ArraySpec, Shard, group_files
from wm.errors import BadData

VALUES = np.random.default_rng(0).integers(0, 256, (150, 8, 8, 3), np.uint8)
FORM = ArraySpec((150, 8, 8, 3), "uint8", 64)


ALL_TYPES = [
    VALUES,
    VALUES[:64],
    VALUES[:1],
    np.zeros((130, 4), np.float32),
    np.arange(70, dtype=np.int64),
    np.arange(70, dtype=np.int32),
    np.arange(5, dtype=np.float16),
    np.array([True, False]),
]


def spec_of(values: np.ndarray) -> ArraySpec:
    return ArraySpec(values.shape, values.dtype.name, 64)


def write(folder: Path, values: np.ndarray) -> Path:
    """The folder of an array `a` in a group."""
    durable.write_folder(folder, group_files({}, {"a": (spec_of(values), [values])}))
    return folder / "a"


def open_in_tensorstore(array: Path) -> Any:
    """An array whose zarr.json exists. Like ours, it stores chunks of zeros too."""
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(array)},
        "store_data_equal_to_fill_value": True,
    }
    return tensorstore.open(spec, open=True).result()


@pytest.fixture
def array(tmp_path: Path) -> Path:
    return write(tmp_path / "g", VALUES)


@pytest.mark.parametrize("values", ALL_TYPES)
def test_zarr_python_and_tensorstore_read_what_we_write_and_so_do_we(tmp_path: Path, values: np.ndarray) -> None:
    array = write(tmp_path / "g", values)
    stored = zarr.open_array(array, mode="r", zarr_format=3)
    assert stored.dtype == values.dtype
    assert np.array_equal(stored[...], values)
    assert np.array_equal(open_in_tensorstore(array).read().result(), values)
    assert np.array_equal(Shard(array, spec_of(values)).all(), values)


@pytest.mark.parametrize("values", ALL_TYPES)
def test_we_read_what_tensorstore_writes(tmp_path: Path, values: np.ndarray) -> None:
    array = write(tmp_path / "g", np.zeros_like(values))
    next(array.glob("c*")).unlink()
    open_in_tensorstore(array).write(values).result()
    assert np.array_equal(Shard(array, spec_of(values)).all(), values)


def test_we_read_the_spelling_of_metadata_that_earlier_versions_wrote(array: Path) -> None:
    (array / METADATA).write_text(json.dumps(FORM.metadata, indent=1) + "\n")
    assert np.array_equal(Shard(array, FORM).all(), VALUES)


def test_the_same_arrays_give_the_same_bytes_whatever_the_order_of_the_attributes() -> None:
    arrays = {"a": (FORM, [VALUES])}
    one = group_files({"x": {"b": 1, "a": 2}, "c": 3}, arrays)
    assert one == group_files({"c": 3, "x": {"a": 2, "b": 1}}, arrays)


@pytest.mark.parametrize(
    "change",
    [
        {"json_indent": 100},
        {"async.concurrency": "many"},
        {"codec_pipeline.path": "another.Pipeline"},
        {"codecs.zstd": "another.Codec"},
        {"buffer": "another.Buffer"},
    ],
)
def test_the_same_arrays_give_the_same_bytes_whatever_a_person_has_set_of_zarr(change: dict[str, Any]) -> None:
    arrays = {"a": (FORM, [VALUES])}
    before = group_files({}, arrays)
    with zarr.config.set(change):
        assert group_files({}, arrays) == before
        (name,) = change
        assert zarr.config.get(name) == change[name]


def test_rows_may_come_in_pieces_of_whole_chunks() -> None:
    pieces = [VALUES[start:stop] for start, stop in ((0, 64), (64, 64), (64, 128), (128, 150))]
    assert group_files({}, {"a": (FORM, pieces)}) == group_files({}, {"a": (FORM, [VALUES])})


def test_a_piece_that_begins_inside_a_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="begins at row 65, inside a chunk"):
        group_files({}, {"a": (FORM, [VALUES[:65], VALUES[65:]])})


def test_a_shard_opens_no_file_before_it_is_read(tmp_path: Path) -> None:
    shard = Shard(tmp_path / "nothing", FORM)
    with pytest.raises(BadData, match="cannot be read"):
        shard.chunk(0)


def test_chunks_are_the_rows_in_order(array: Path) -> None:
    shard = Shard(array, FORM)
    assert np.array_equal(np.concatenate([shard.chunk(number) for number in range(3)]), VALUES)


def test_a_flipped_bit_or_a_cut_is_never_silent(array: Path) -> None:
    rng = np.random.default_rng(0)
    for file in (array / "c.0.0.0.0", array / "zarr.json"):
        good = file.read_bytes()
        for trial in range(100):
            bad = bytearray(good)
            bad[int(rng.integers(len(bad)))] ^= 1 << int(rng.integers(8))
            file.write_bytes(bytes(bad) if trial % 2 else good[: int(rng.integers(len(good)))])
            with pytest.raises(BadData):
                Shard(array, FORM).all()
        file.write_bytes(good)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2**50, 8, 8, 3]},
        {"data_type": "float32"},
        {"zarr_format": 2},
        {"codecs": [{"name": "numcodecs.pickle"}]},
        {"codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {}}]},
        {"attributes": {"deep": 1}},
    ],
)
def test_other_metadata_is_refused_before_anything_is_decoded(array: Path, change: dict[str, object]) -> None:
    file = array / "zarr.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}, indent=1) + "\n")
    with pytest.raises(BadData, match="does not describe the expected array"):
        Shard(array, FORM).all()


@pytest.mark.parametrize("text", ["", "[" * 4000, "{}" + " " * (1 << 20), "\xff", "[1" + "0" * 4000 + "]"])
def test_metadata_that_are_no_short_json_are_refused(array: Path, text: str) -> None:
    (array / METADATA).write_text(text, encoding="latin-1")
    with pytest.raises(BadData, match="does not describe the expected array"):
        Shard(array, FORM).all()


def with_chunk(array: Path, frame: bytes, offset: int = 0) -> None:
    """Replace the data of a one-chunk array, all checksums right."""
    chunk = frame + struct.pack("<I", google_crc32c.value(frame))
    index = struct.pack("<QQ", offset, len(chunk))
    index += struct.pack("<I", google_crc32c.value(index))
    (array / "c.0").write_bytes(chunk + index)
    (array / "zarr.json").write_text(json.dumps(ArraySpec((64,), "uint8", 64).metadata))


def test_a_decompression_bomb_is_refused_by_the_size_it_declares(array: Path) -> None:
    form = ArraySpec((64,), "uint8", 64)
    with_chunk(array, zstandard.compress(np.arange(64, dtype=np.uint8)))
    assert Shard(array, form).all().tolist() == list(range(64))
    with_chunk(array, zstandard.compress(np.zeros(1 << 24, np.uint8)))
    with pytest.raises(BadData, match="declares a wrong size"):
        Shard(array, form).all()


def test_an_index_that_points_elsewhere_is_refused(array: Path) -> None:
    with_chunk(array, zstandard.compress(np.arange(64, dtype=np.uint8)), offset=1 << 40)
    with pytest.raises(BadData, match="index that does not fit"):
        Shard(array, ArraySpec((64,), "uint8", 64)).all()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("name", [METADATA, FORM.shard])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    durable.write_folder(tmp_path, group_files({}, {"a": (FORM, [VALUES])}))
    (tmp_path / "a" / name).unlink()
    os.mkfifo(tmp_path / "a" / name)
    opened = os.open(tmp_path / "a" / name, os.O_RDWR)  # so that even a reader that opens it does not wait for ever
    os.write(opened, bytes(100))
    with pytest.raises(BadData, match="is a pipe or a device"):
        Shard(tmp_path / "a", FORM).all()
    os.close(opened)
