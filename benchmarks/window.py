"""Random windows of 32 and 50 frames on one core, against zarr-python slicing the same parts; windows per second."""

import itertools

import numpy as np
import zarr

from benchmarks.datasets import dataset
from benchmarks.measure import one_core, rates, report
from wm.episodes.frame_batches import FrameReader


def main() -> None:
    one_core()
    data = dataset("Pong", 50)
    reader = FrameReader(data)
    arrays = [zarr.open_array(part.folder / "frames", mode="r", zarr_format=3) for part in data.parts]
    starts = np.cumsum([0] + [part.rows for part in data.parts])
    for length in (32, 50):
        # Within one part, so that the reference needs no more than one slice.
        random = np.random.default_rng(0)
        parts = random.integers(0, len(arrays), 4000)
        firsts = random.integers(0, [data.parts[part].rows - length for part in parts])
        windows = itertools.cycle(zip(parts.tolist(), firsts.tolist(), strict=True))

        def ours(windows=windows, length=length) -> None:  # type: ignore[no-untyped-def]
            part, first = next(windows)
            reader.read(int(starts[part]) + first, int(starts[part]) + first + length)

        def theirs(windows=windows, length=length) -> None:  # type: ignore[no-untyped-def]
            part, first = next(windows)
            arrays[part][first : first + length]

        rate, reference, ratio = rates(ours, theirs)
        report(f"window_{length}", rate, reference, 5.0, "windows/s", ratio)


if __name__ == "__main__":
    main()
