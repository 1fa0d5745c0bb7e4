from pathlib import Path

import numpy as np
import pytest

from tests.conftest import RECIPE, make_episode
from wm.episodes import frame_batches as batches
from wm.episodes import schema
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameBatches, FrameReader
from wm.episodes.writer import Writer, create
from wm.errors import BadData


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setattr(schema, "PART_ROWS", 150)
    monkeypatch.setattr(batches, "GROUP_CHUNKS", 3)
    return grow(tmp_path / "d.zarr", 30)


def grow(path: Path, upto: int) -> Dataset:
    with Writer(Dataset.open(path) if path.exists() else create(path, RECIPE)) as writer:
        for index in range(writer.next, upto):
            writer.add(make_episode(index).pack())
    return Dataset.open(path)


def draw(dataset: Dataset, ram: int, steps: list[int], seed: int = 0) -> list[np.ndarray]:
    source = FrameBatches(dataset, np.ones(dataset.episodes, bool), 16, seed, ram)
    assert source.in_memory == (ram > 0)
    return [source.at(step) for step in steps]


def test_streamed_and_in_memory_batches_are_equal(dataset: Dataset) -> None:
    steps = [0, 1, 2, 30, 36, 37, 38, 80, 3]
    for one, two in zip(draw(dataset, 0, steps), draw(dataset, 1 << 30, steps), strict=True):
        assert np.array_equal(one, two)


def test_a_batch_depends_on_seed_and_step_alone(dataset: Dataset) -> None:
    forwards = draw(dataset, 0, [0, 1, 2, 50])
    backwards = draw(dataset, 0, [50, 2, 1, 0])[::-1]
    assert all(np.array_equal(one, two) for one, two in zip(forwards, backwards, strict=True))
    assert not np.array_equal(forwards[0], draw(dataset, 0, [0], seed=1)[0])


def test_an_epoch_has_every_frame_once(dataset: Dataset) -> None:
    steps = list(range(dataset.rows // 16))
    frames = np.concatenate(draw(dataset, 0, steps))
    stored = FrameReader(dataset).read(0, dataset.rows)
    assert len({frame.tobytes() for frame in frames}) == len(frames)
    assert {frame.tobytes() for frame in frames} <= {frame.tobytes() for frame in stored}


def test_batches_of_a_prefix_do_not_change_when_the_dataset_grows(tmp_path: Path, dataset: Dataset) -> None:
    short = grow(tmp_path / "short.zarr", 10)
    one, two = draw(short, 0, [0, 5, 13]), draw(Dataset.open(dataset.path, 10), 0, [0, 5, 13])
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_only_episodes_of_the_mask_are_used(dataset: Dataset) -> None:
    mask = np.zeros(30, bool)
    mask[[2, 17]] = True
    source = FrameBatches(dataset, mask, 8, 0, 0)
    expected = {frame.tobytes() for k in (2, 17) for frame in make_episode(k).frames}
    assert source.frames == 40
    for step in range(5):
        assert {frame.tobytes() for frame in source.at(step)} <= expected


def test_after_a_group_that_cannot_be_decoded_the_previous_one_is_decoded_again(dataset: Dataset) -> None:
    source = FrameBatches(dataset, np.ones(dataset.episodes, bool), 16, 0, 0)
    good = source.at(0)
    second = [source._chunks[number] for number in source._chunk_order[3:6]]
    chunk = max(second, key=lambda one: one.first_row)  # the last that is decoded
    data = bytearray(chunk.shard.path.read_bytes())
    data[sum(chunk.shard._index[chunk.number]) - 1] ^= 1
    chunk.shard.path.write_bytes(data)
    with pytest.raises(BadData, match=f"damaged at chunk {chunk.number}"):
        source.at(int(source._ends[0]) // 16 + 1)
    assert np.array_equal(source.at(0), good)


def test_windows_in_any_order_are_the_rows_and_own_their_memory(dataset: Dataset) -> None:
    rows = np.concatenate([make_episode(k).frames for k in range(30)])
    reader, random = FrameReader(dataset), np.random.default_rng(0)
    starts = random.integers(0, len(rows) - 140, 50).tolist()
    windows = [reader.read(start, start + 140) for start in starts]  # longer than two chunks, across parts
    batch = np.empty((50, 140, *rows.shape[1:]), np.uint8)
    for window, start in zip(batch, starts, strict=True):
        reader.read(start, start + 140, window)
    for number, start in enumerate(starts):
        assert np.array_equal(windows[number], rows[start : start + 140])
        assert np.array_equal(batch[number], rows[start : start + 140])


def test_after_a_chunk_that_cannot_be_decoded_the_previous_one_is_decoded_again(dataset: Dataset) -> None:
    reader = FrameReader(dataset)
    good = reader.read(0, 10)
    shard = dataset.parts[0].folder / "frames" / "c.0.0.0.0"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(BadData, match="damaged at chunk 1"):
        reader.read(70, 80)
    assert np.array_equal(reader.read(0, 10), good)
    with pytest.raises(BadData, match="damaged at chunk 1"):
        reader.read(70, 80)


def test_shards_are_opened_when_they_are_read(dataset: Dataset) -> None:
    for part in dataset.parts[1:]:
        (part.folder / "frames" / "zarr.json").unlink()
    reader = FrameReader(dataset)
    source = FrameBatches(dataset, np.ones(dataset.episodes, bool), 16, 0, 0)
    reader.read(0, dataset.parts[0].rows)
    for read in (lambda: reader.read(0, dataset.rows), lambda: source.at(0)):
        with pytest.raises(BadData, match="cannot be read"):
            read()
