"""Batches from several datasets, such as those of rounds: each has its share of every batch."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from wm.episodes.frame_batches import FrameBatches
from wm.episodes.windows import WindowBatch, Windows
from wm.errors import UsageProblem


def split_batch(batch: int, weights: Sequence[float]) -> list[int]:
    """`batch` in whole parts as near to the weights as can be, none of them empty. Raises UsageProblem where the batch
    is too small for that."""
    if batch < len(weights):
        raise UsageProblem(f"--batch is {batch} but there are {len(weights)} datasets; give a larger one.")
    share = np.array(weights, np.float64) / sum(weights)
    edges = np.round(np.cumsum(share) * (batch - len(share))).astype(int)
    return [int(part) + 1 for part in np.diff(edges, prepend=0)]


class FrameMixture:
    """Batches of frames, a part of each from every source."""

    def __init__(self, sources: Sequence[FrameBatches]) -> None:
        self._sources = sources

    @property
    def nbytes(self) -> int:
        """Bytes of the frames that are decoded now."""
        return sum(source.nbytes for source in self._sources)

    def at(self, step: int, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The batch of a step, in the first rows of `out`."""
        filled = 0
        for source in self._sources:
            filled += len(source.at(step, out[filled : filled + source.batch]))
        return out[:filled]

    def about(self, step: int) -> str:
        """Which batch a step has, in words."""
        return "; ".join(source.about(step) for source in self._sources)


class WindowMixture:
    """Batches of windows, a part of each from every source."""

    def __init__(self, sources: Sequence[Windows]) -> None:
        self._sources = sources

    def at(self, step: int) -> WindowBatch:
        """The batch of a step."""
        parts = [source.at(step) for source in self._sources]
        return WindowBatch(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(WindowBatch)))

    def about(self, step: int) -> str:
        """Where the batch of a step comes from, in words."""
        return "; ".join(source.about(step) for source in self._sources)
