"""Random windows of 32 and 50 frames on one core, against zarr-python slicing the same parts; windows per second."""

import itertools

import numpy as np
import zarr

from benchmarks.datasets import dataset
from benchmarks.measure import one_core, rates, report
from wm.episodes.frame_batches import FrameReader


def main() -> None:
    one_core()
    held = dataset("Pong", 50)
    reader = FrameReader(held)
    arrays = [zarr.open_array(part.folder / "frames", mode="r", zarr_format=3) for part in held.parts]
    starts = np.cumsum([0] + [part.rows for part in held.parts])
    for length in (32, 50):
        # Within one part, so that the reference needs no more than one slice.
        random = np.random.default_rng(0)
        parts = random.integers(0, len(arrays), 4000)
        firsts = random.integers(0, [held.parts[part].rows - length for part in parts])
        drawn = itertools.cycle(zip(parts.tolist(), firsts.tolist(), strict=True))

        def ours(drawn=drawn, length=length) -> None:  # type: ignore[no-untyped-def]
            part, first = next(drawn)
            reader.read(int(starts[part]) + first, int(starts[part]) + first + length)

        def theirs(drawn=drawn, length=length) -> None:  # type: ignore[no-untyped-def]
            part, first = next(drawn)
            arrays[part][first : first + length]

        found = rates(ours, theirs)
        report(f"window_{length}", found[0], found[1], 5.0, "windows/s", found[2])


if __name__ == "__main__":
    main()
