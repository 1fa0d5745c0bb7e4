"""Shuffled batches of frames: batch = f(seed, step), the same decoded into RAM or streamed from disk.

Chunks are permuted; groups of `GROUP_CHUNKS` form a shuffle buffer, and frames are permuted within a group. One group
is decoded at a time. Chunks are counted from the start of each part, and which episodes share a part depends on the
episodes alone. So the order does not depend on interruptions of the collection.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from wm.episodes.dataset import Dataset
from wm.episodes.schema import CHUNK_ROWS
from wm.episodes.shards import Shard
from wm.seeding import generator

GROUP_CHUNKS = 64  # a shuffle buffer of 50 MB for 64 x 64 RGB


@dataclass(frozen=True)
class _Chunk:
    shard: Shard
    number: int
    first_row: int
    rows: int  # without those after the dataset's last episode in use


class FrameBatches:
    """Batches of uint8 frames (B, H, W, C) from the episodes of a mask.

    If all frames fit into `ram` bytes they are decoded once. Otherwise the chunks of one group at a time are decoded
    into a shuffle buffer. Both give the same batches, byte for byte.
    """

    def __init__(self, dataset: Dataset, mask: NDArray[np.bool_], batch: int, seed: int, ram: int) -> None:
        self.batch, self.seed = batch, seed
        self._shape = dataset.frame_shape
        self._chunks = _chunks(dataset)
        self._mask = np.repeat(mask, np.diff(dataset.ends, prepend=0))
        self._counts = np.array([self._mask[c.first_row : c.first_row + c.rows].sum() for c in self._chunks])
        self.frames = int(self._counts.sum())
        self.in_memory = dataset.rows * int(np.prod(self._shape)) <= ram
        self._rows = dataset.rows
        self._epoch = -1
        self._group = -1

    @cached_property
    def _all(self) -> NDArray[np.uint8]:
        frames = np.empty((self._rows, *self._shape), np.uint8)
        self._decode([(chunk, frames[chunk.first_row :]) for chunk in self._chunks])
        return frames

    @cached_property
    def _buffer(self) -> NDArray[np.uint8]:
        return np.empty((min(GROUP_CHUNKS, len(self._chunks)) * CHUNK_ROWS, *self._shape), np.uint8)

    def _begin_epoch(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        # Names the stream of random numbers by the epoch, so that any step can be computed without the ones before.
        self._chunk_order = generator(self.seed, "frames", epoch).permutation(len(self._chunks))
        starts = np.arange(0, len(self._chunks), GROUP_CHUNKS)
        self._ends = np.cumsum(np.add.reduceat(self._counts[self._chunk_order], starts))
        self._epoch, self._group = epoch, -1

    def _begin_group(self, number: int) -> None:
        """Set `_order`, the group's frames of the mask in shuffled order: rows of the dataset, or of the buffer."""
        if number == self._group:
            return
        chunks = [self._chunks[i] for i in self._chunk_order[number * GROUP_CHUNKS : (number + 1) * GROUP_CHUNKS]]
        rows = np.concatenate([np.arange(chunk.first_row, chunk.first_row + chunk.rows) for chunk in chunks])
        in_mask = np.flatnonzero(self._mask[rows])
        # Another stream than that of the chunks: it has the number of the group, too.
        order = generator(self.seed, "frames", self._epoch, number).permutation(in_mask)
        if self.in_memory:
            order = rows[order]
        else:
            self._group = -1  # in case of an error, the buffer has frames of two groups
            starts = np.cumsum([0] + [chunk.rows for chunk in chunks]).tolist()
            self._decode([(chunk, self._buffer[start:]) for chunk, start in zip(chunks, starts, strict=False)])
        self._order, self._group = order, number

    def _decode(self, targets: Sequence[tuple[_Chunk, NDArray[np.uint8]]]) -> None:
        """Decode each chunk into the first rows of its array. In the order of the files, so each is opened once."""
        ordered = sorted(targets, key=lambda pair: pair[0].first_row)
        for shard, pairs in groupby(ordered, key=lambda pair: pair[0].shard):
            shard.decode_each([(chunk.number, frames[: chunk.rows]) for chunk, frames in pairs])

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded frames in memory."""
        return sum(vars(self)[name].nbytes for name in ("_all", "_buffer") if name in vars(self))

    def describe(self, step: int) -> str:
        """The batch of a step, described for messages."""
        return f"batch {step}, in epoch {step // max(self.frames // self.batch, 1)}"

    @property
    def size(self) -> int:
        """Frames of every batch: fewer than `batch` where there are no more."""
        return min(self.batch, self.frames)

    def at(
        self, step: int, out: NDArray[np.uint8] | None = None, rows: tuple[int, int] | None = None
    ) -> NDArray[np.uint8]:
        """The batch of a step, or those `rows` of it, in the first rows of `out` or, without it, in a new array. Epochs
        follow each other without a gap; a batch never mixes two of them."""
        # The last frames of an epoch that fill no batch are left out, and another epoch leaves out others.
        per_epoch = max(self.frames // self.batch, 1)
        epoch, number_in_epoch = divmod(step, per_epoch)
        self._begin_epoch(epoch)
        start, stop = (number_in_epoch * self.batch + row for row in rows or (0, self.size))
        batch = np.empty((stop - start, *self._shape), np.uint8) if out is None else out[: stop - start]
        filled = 0
        while filled < len(batch):
            number = int(np.searchsorted(self._ends, start + filled, side="right"))
            self._begin_group(number)
            remaining = int(self._ends[number]) - start - filled
            indices = self._order[len(self._order) - remaining :][: len(batch) - filled]
            source = self._all if self.in_memory else self._buffer
            # Indices are in range; any mode but the default lets take write straight into the batch.
            np.take(source, indices, axis=0, out=batch[filled : filled + len(indices)], mode="clip")
            filled += len(indices)
        return batch


def _chunks(dataset: Dataset) -> list[_Chunk]:
    """The chunks of all parts, counted from the start of each, up to the dataset's last episode in use."""
    chunks, first_row = [], 0
    for part in dataset.parts:
        shard = dataset.shard(part, "frames")
        for number in range(shard.spec.chunks):
            start = first_row + number * CHUNK_ROWS
            rows = min(CHUNK_ROWS, first_row + part.rows - start, dataset.rows - start)
            if rows > 0:
                chunks.append(_Chunk(shard, number, start, rows))
        first_row += part.rows
    return chunks


class FrameReader:
    """Sequential and random access to rows, with one decoded chunk in memory."""

    def __init__(self, dataset: Dataset) -> None:
        self.rows = dataset.rows
        self._shards = [dataset.shard(part, "frames") for part in dataset.parts]
        self._starts = np.cumsum([0] + [part.rows for part in dataset.parts])
        # One buffer for the reader's life: new memory costs page faults, 192 for each chunk of 64 x 64 RGB. Random
        # batches of 32 windows of 50 frames into one array came 4 times as fast on Pong, 1.9 times on CarRacing.
        self._chunk = np.empty((CHUNK_ROWS, *dataset.frame_shape), np.uint8)
        self._decoded: tuple[int, int] | None = None  # (shard, chunk) in the buffer

    def read(self, start: int, stop: int, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Rows start..stop-1 as (n, H, W, C), in `out` or, without it, in a new array."""
        frames = np.empty((stop - start, *self._chunk.shape[1:]), np.uint8) if out is None else out
        filled = 0
        while filled < len(frames):
            row = start + filled
            shard = int(np.searchsorted(self._starts, row, side="right")) - 1
            number, skip = divmod(row - int(self._starts[shard]), CHUNK_ROWS)
            rows = min(len(frames) - filled, CHUNK_ROWS - skip, int(self._starts[shard + 1]) - row)
            if self._decoded != (shard, number):
                self._decoded = None  # in case of an error, the buffer has rows of both
                self._shards[shard].decode_into(number, self._chunk)
                self._decoded = (shard, number)
            frames[filled : filled + rows] = self._chunk[skip : skip + rows]
            filled += rows
        return frames


def evenly_spaced_rows(dataset: Dataset, episodes: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Up to `count` rows, evenly from these episodes."""
    rows = np.flatnonzero(np.repeat(episodes, np.diff(dataset.ends, prepend=0)))
    return rows[np.unique(np.linspace(0, len(rows) - 1, count).astype(np.int64))]


def evenly_spaced_frames(
    datasets: Sequence[Dataset], masks: list[NDArray[np.bool_]], sizes: list[int], count: int
) -> NDArray[np.uint8]:
    """Up to `count` frames, evenly from the masked episodes of each dataset, in proportion to its part of a batch."""
    samples = []
    for dataset, mask, size in zip(datasets, masks, sizes, strict=True):
        reader = FrameReader(dataset)
        # In whole rows of each dataset: rounding may leave a few of `count` out, which no statistic of them notices.
        rows = evenly_spaced_rows(dataset, mask, count * size // sum(sizes))
        frames = np.empty((len(rows), *dataset.frame_shape), np.uint8)
        for number, row in enumerate(rows):
            reader.read(int(row), int(row) + 1, out=frames[number : number + 1])
        samples.append(frames)
    return np.concatenate(samples)
