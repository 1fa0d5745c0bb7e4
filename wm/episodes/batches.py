"""Shuffled batches of frames: batch = f(seed, step), the same decoded into RAM or streamed from disk.

The order: chunks are permuted, groups of `GROUP_CHUNKS` of them form a shuffle buffer, and frames are permuted within
a group. Chunks are counted from the start of each part, and which episodes share a part depends on the episodes
alone, so the order is the same however often collection was interrupted.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wm.episodes.dataset import Dataset
from wm.episodes.schema import CHUNK_ROWS
from wm.episodes.shards import FrameShard
from wm.seeding import generator

GROUP_CHUNKS = 64


def held_out(seeds: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """(episodes,) which are for validation. An episode's lot depends on its own seed, so more data moves none of them.

    With two episodes or more at least one is on each side; a single one is for both and counts as not held out.
    """
    lots = np.array([generator(int(seed), "held out").random() for seed in seeds])
    held: NDArray[np.bool_] = lots < share
    if len(held) > 1:
        held[np.argmin(lots)] = True
        held[np.argmax(lots)] = False
    else:
        held[:] = False
    return held


@dataclass(frozen=True)
class _Chunk:
    shard: int
    number: int
    first_row: int
    rows: int


class FrameBatches:
    """Batches of uint8 frames (B, H, W, C) from the chosen episodes of a dataset.

    `ram` bytes are allowed for decoded frames: if everything fits it is decoded once, else chunks are decoded as
    their group comes up. The batches are equal, byte for byte.
    """

    def __init__(self, dataset: Dataset, chosen: NDArray[np.bool_], batch: int, seed: int, ram: int) -> None:
        self.batch, self.seed = batch, seed
        self._shards = [FrameShard(part.folder) for part in dataset.parts]
        self._shape = dataset.frame_shape
        self._chunks: list[_Chunk] = []
        first = 0
        for number, shard in enumerate(self._shards):
            for chunk in range(shard.chunks):
                start = first + chunk * CHUNK_ROWS
                rows = min(CHUNK_ROWS, first + shard.rows - start, dataset.rows - start)
                if rows > 0:
                    self._chunks.append(_Chunk(number, chunk, start, rows))
            first += shard.rows
        lengths = np.diff(dataset.ends, prepend=0)
        self._wanted = np.repeat(chosen, lengths)
        self.frames = int(self._wanted.sum())
        self.in_memory = dataset.rows * int(np.prod(self._shape)) <= ram
        self._decoded: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()
        self._epoch = -1
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._groups: list[NDArray[np.int64]] = []

    @cached_property
    def _all(self) -> NDArray[np.uint8]:
        frames = np.empty((sum(chunk.rows for chunk in self._chunks), *self._shape), np.uint8)
        for chunk in self._chunks:
            frames[chunk.first_row : chunk.first_row + chunk.rows] = self._decode(chunk)
        return frames

    def _decode(self, chunk: _Chunk) -> NDArray[np.uint8]:
        return self._shards[chunk.shard].chunk(chunk.number)[: chunk.rows]

    def _shuffle(self, epoch: int) -> None:
        """The order of an epoch: per frame, its group and its place among the group's rows, and its dataset row."""
        if epoch == self._epoch:
            return
        random = generator(self.seed, "frames", epoch)
        chunks = random.permutation(len(self._chunks))
        order, self._groups = [], []
        for start in range(0, len(chunks), GROUP_CHUNKS):
            group = chunks[start : start + GROUP_CHUNKS]
            rows = np.concatenate(
                [np.arange(self._chunks[i].first_row, self._chunks[i].first_row + self._chunks[i].rows) for i in group]
            )
            wanted = np.flatnonzero(self._wanted[rows])
            places = random.permutation(wanted)
            numbers = np.full(len(places), len(self._groups))
            order.append(np.stack([numbers, places, rows[places]], axis=1))
            self._groups.append(group)
        self._order, self._epoch = np.concatenate(order), epoch
        self._decoded.clear()

    def _group(self, number: int) -> NDArray[np.uint8]:
        if number not in self._decoded:
            while len(self._decoded) > 1:
                self._decoded.popitem(last=False)
            self._decoded[number] = np.concatenate([self._decode(self._chunks[i]) for i in self._groups[number]])
        return self._decoded[number]

    def at(self, step: int) -> NDArray[np.uint8]:
        """The batch of a step. Epochs follow each other without a gap; a batch never mixes two of them."""
        per_epoch = max(self.frames // self.batch, 1)
        epoch, place = divmod(step, per_epoch)
        self._shuffle(epoch)
        chosen = self._order[place * self.batch : (place + 1) * self.batch]
        if self.in_memory:
            return self._all[chosen[:, 2]]
        batch = np.empty((len(chosen), *self._shape), np.uint8)
        for number in np.unique(chosen[:, 0]):
            here = chosen[:, 0] == number
            batch[here] = self._group(int(number))[chosen[here, 1]]
        return batch


class FrameReader:
    """Sequential and random access to rows, holding one decoded chunk at a time."""

    def __init__(self, dataset: Dataset) -> None:
        self.rows = dataset.rows
        self._shards = [FrameShard(part.folder) for part in dataset.parts]
        self._starts = np.cumsum([0] + [shard.rows for shard in self._shards])
        self._last: tuple[tuple[int, int], NDArray[np.uint8]] | None = None

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Rows start..stop-1 as (n, H, W, C)."""
        pieces = []
        while start < stop:
            shard = int(np.searchsorted(self._starts, start, side="right")) - 1
            number, skip = divmod(start - int(self._starts[shard]), CHUNK_ROWS)
            if self._last is None or self._last[0] != (shard, number):
                self._last = ((shard, number), self._shards[shard].chunk(number))
            piece = self._last[1][skip : skip + stop - start]
            pieces.append(piece)
            start += len(piece)
        return np.concatenate(pieces)
