"""Shuffled batches of 64 uint8 frames streamed from disk on one core, against the same shuffle loop over one array in
RAM; frames per second. And the rate itself against 150,000."""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import dataset
from benchmarks.measure import one_core, rates, report
from wm.episodes.frame_batches import FrameBatches, _Chunk


def main() -> None:
    one_core()
    # Goals as shares of the same loop in RAM. Pong's is out of reach on one core: decoding alone leaves 0.85
    # (2026-11-26).
    for env, episodes, goal in (("Pong", 50, 0.9), ("CarRacing", 20, 0.33)):
        data = dataset(env, episodes)
        mask = np.ones(data.episodes, bool)
        streamed, copied = FrameBatches(data, mask, 64, 0, ram=0), _CopiedBatches(data, mask, 64, 0, ram=0)
        copied.whole = np.concatenate([data.shard(part, "frames").all() for part in data.parts])
        one, two = itertools.count(), itertools.count()
        ours, reference, ratio = rates(
            lambda streamed=streamed, one=one: len(streamed.at(next(one))),  # type: ignore[misc]
            lambda copied=copied, two=two: len(copied.at(next(two))),  # type: ignore[misc]
        )
        report(f"stream_{env.lower()}", ours, reference, goal, "frames/s", ratio)
        report(f"stream_{env.lower()}_rate", ours, 150_000, 1.0, "frames/s")


class _CopiedBatches(FrameBatches):
    """The same loop, but chunks are copied from an array, in the order of the buffer, instead of decoded."""

    whole: NDArray[np.uint8]

    def _decode(self, targets: Sequence[tuple[_Chunk, NDArray[np.uint8]]]) -> None:
        for chunk, frames in targets:
            frames[: chunk.rows] = self.whole[chunk.first_row : chunk.first_row + chunk.rows]


if __name__ == "__main__":
    main()
