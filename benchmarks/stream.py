"""Shuffled batches of 64 uint8 frames streamed from disk on one core, against the same shuffle loop over one array in
RAM; frames per second. And the rate itself against 150,000."""

import itertools

import numpy as np

from benchmarks.datasets import dataset
from benchmarks.measure import one_core, rates, report
from wm.episodes import frame_batches as batches
from wm.episodes.frame_batches import FrameBatches


def main() -> None:
    one_core()
    for env, episodes, goal in (("Pong", 50, 0.9), ("CarRacing", 20, 0.33)):
        data = dataset(env, episodes)
        mask = np.ones(data.episodes, bool)
        streamed, copied = (FrameBatches(data, mask, 64, 0, ram=0) for _ in range(2))
        whole = np.concatenate([data.shard(part, "frames").all() for part in data.parts])
        # The same loop, but a chunk is copied from the array instead of decoded.
        copied._chunks = [_Copied(c.shard, c.number, c.first_row, c.rows, whole) for c in copied._chunks]  # type: ignore[misc]
        one, two = itertools.count(), itertools.count()
        ours, reference, ratio = rates(
            lambda streamed=streamed, one=one: len(streamed.at(next(one))),  # type: ignore[misc]
            lambda copied=copied, two=two: len(copied.at(next(two))),  # type: ignore[misc]
        )
        report(f"stream_{env.lower()}", ours, reference, goal, "frames/s", ratio)
        report(f"stream_{env.lower()}_rate", ours, 150_000, 1.0, "frames/s")


class _Copied(batches._Chunk):
    def __init__(self, shard: object, number: int, first_row: int, rows: int, whole: np.ndarray) -> None:
        super().__init__(shard, number, first_row, rows)  # type: ignore[arg-type]
        object.__setattr__(self, "whole", whole)

    def decode_into(self, frames: np.ndarray) -> None:
        frames[: self.rows] = self.whole[self.first_row : self.first_row + self.rows]  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
