import json
import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import zarr
import zstandard

from wm.artifacts import durable
from wm.episodes.shards import ArraySpec, Shard, ShardEncoder, array_files
from wm.errors import BadData

VALUES = np.random.default_rng(0).integers(0, 256, (150, 8, 8, 3), np.uint8)
FORM = ArraySpec((150, 8, 8, 3), "uint8", 64)


@pytest.fixture
def array(tmp_path: Path) -> Path:
    durable.write_folder(tmp_path / "a", array_files(VALUES, 64))
    return tmp_path / "a"


@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        VALUES[:64],
        VALUES[:1],
        np.zeros((130, 4), np.float32),
        np.arange(70, dtype=np.int64),
        np.arange(5, dtype=np.float16),
        np.array([True, False]),
    ],
)
def test_zarr_reads_what_we_write_and_so_do_we(tmp_path: Path, values: np.ndarray) -> None:
    durable.write_folder(tmp_path / "a", array_files(values, 64))
    stored = zarr.open_array(tmp_path / "a", mode="r", zarr_format=3)
    assert stored.dtype == values.dtype
    assert np.array_equal(stored[...], values)
    assert np.array_equal(Shard(tmp_path / "a", ArraySpec(values.shape, values.dtype.name, 64)).all(), values)


def test_rows_may_come_in_any_portions(array: Path) -> None:
    encoder = ShardEncoder((8, 8, 3), "uint8", 64)
    for start, stop in ((0, 1), (1, 64), (64, 64), (64, 150)):
        encoder.add(VALUES[start:stop])
        encoder.files()
    assert encoder.files() == array_files(VALUES, 64)


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
    with pytest.raises(BadData, match="does not describe the array"):
        Shard(array, FORM)


def with_chunk(array: Path, frame: bytes, offset: int = 0) -> None:
    """Replace the data of a one-chunk array, all checksums right."""
    chunk = frame + struct.pack("<I", google_crc32c.value(frame))
    index = struct.pack("<QQ", offset, len(chunk))
    index += struct.pack("<I", google_crc32c.value(index))
    (array / "c.0").write_bytes(chunk + index)
    (array / "zarr.json").write_bytes(ArraySpec((64,), "uint8", 64).metadata)


def test_a_decompression_bomb_is_refused_by_the_size_it_declares(array: Path) -> None:
    form = ArraySpec((64,), "uint8", 64)
    with_chunk(array, zstandard.compress(np.arange(64, dtype=np.uint8)))
    assert Shard(array, form).all().tolist() == list(range(64))
    with_chunk(array, zstandard.compress(np.zeros(1 << 28, np.uint8)))
    with pytest.raises(BadData, match="declares a wrong size"):
        Shard(array, form).all()


def test_an_index_that_points_elsewhere_is_refused(array: Path) -> None:
    with_chunk(array, zstandard.compress(np.arange(64, dtype=np.uint8)), offset=1 << 40)
    with pytest.raises(BadData, match="index that does not fit"):
        Shard(array, ArraySpec((64,), "uint8", 64))
