"""Random 64-frame chunks of a Pong dataset through our shard reader, against zarr-python slicing; chunks per second."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import zarr

from benchmarks.measure import rate, report
from stages.collect import collect
from stages.session import Session
from wm.episodes.dataset import Dataset
from wm.episodes.shards import FrameShard
from wm.settings import CollectSettings


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Pong.zarr"
        collect(Session("Pong", data=path), CollectSettings(episodes=9))
        part = Dataset.open(path).parts[0].folder
        shard = FrameShard(part)
        array = zarr.open_array(part / "frames", mode="r", zarr_format=3)
        order = itertools.cycle(np.random.default_rng(0).permutation(shard.chunks - 1).tolist())
        ours = rate(lambda: shard.chunk(next(order)))
        reference = rate(lambda: array[64 * (number := next(order)) : 64 * number + 64])
    report("chunk_pong", ours, reference, 5.0, "chunks/s")


if __name__ == "__main__":
    main()
