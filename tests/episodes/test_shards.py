import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import RECIPE, make_episode
from wm.episodes.parts import write_part
from wm.episodes.shards import FrameShard
from wm.episodes.writer import create
from wm.errors import BadData


@pytest.fixture
def part(tmp_path: Path) -> Path:
    create(tmp_path / "d.zarr", RECIPE)
    return write_part(tmp_path / "d.zarr", RECIPE, [make_episode(k, rows=50) for k in range(3)])


def test_chunks_are_the_frames_in_order(part: Path) -> None:
    shard = FrameShard(part)
    assert (shard.rows, shard.chunks, shard.frame_shape) == (150, 3, (32, 32, 3))
    frames = np.concatenate([shard.chunk(number) for number in range(3)])
    assert np.array_equal(frames, np.concatenate([make_episode(k, rows=50).frames for k in range(3)]))


def test_a_flipped_bit_in_the_frames_is_never_silent(part: Path) -> None:
    file = part / "frames" / "c.0.0.0.0"
    good = file.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(100):
        bad = bytearray(good)
        bad[int(rng.integers(len(bad)))] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(bad))
        with pytest.raises(BadData):  # noqa: PT012
            shard = FrameShard(part)
            for number in range(3):
                shard.chunk(number)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2**50, 32, 32, 3]},
        {"shape": [60, 3200, 32, 3]},
        {"data_type": "float32"},
        {"zarr_format": 2},
        {"codecs": [{"name": "numcodecs.pickle"}]},
        {"codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {}}]},
    ],
)
def test_foreign_metadata_is_refused_before_anything_is_decoded(part: Path, change: dict[str, object]) -> None:
    file = part / "frames" / "zarr.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(BadData):
        FrameShard(part)
