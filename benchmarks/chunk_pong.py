"""Random 64-frame chunks of a Pong dataset through our shard reader, against zarr-python slicing; chunks per second."""

import itertools

import numpy as np
import zarr

from benchmarks.datasets import dataset
from benchmarks.measure import rate, report


def main() -> None:
    # Nine episodes are a full part, of 8,192 rows.
    data = dataset("Pong", 9)
    shard = data.shard(data.parts[0], "frames")
    array = zarr.open_array(data.parts[0].folder / "frames", mode="r", zarr_format=3)
    order = itertools.cycle(np.random.default_rng(0).permutation(shard.spec.chunks - 1).tolist())
    ours = rate(lambda: shard.chunk(next(order)))
    reference = rate(lambda: array[64 * (number := next(order)) : 64 * number + 64])
    # The goals of this folder were set before the code; docs/results/speed.md shows which are met.
    report("chunk_pong", ours, reference, 5.0, "chunks/s")


if __name__ == "__main__":
    main()
