"""Training on several datasets at once, such as those of several rounds: each has its share of every batch."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.artifacts.json_reader import LARGEST_NUMBER
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameBatches
from wm.episodes.pieces import WHOLE, Piece
from wm.episodes.windows import WindowBatch, Windows
from wm.errors import RecipeMismatch, UsageProblem


def distinct(paths: Sequence[Path]) -> list[Path]:
    """The paths without those of a dataset that an earlier one leads to as well."""
    first: dict[Path, Path] = {}
    for path in paths:
        first.setdefault(path.resolve(), path)
    return list(first.values())


def open_datasets(env: str, paths: Sequence[Path], episodes: int = 0) -> list[Dataset]:
    """Open every dataset of an environment; of the first one `episodes` are used (0: all). One that is given twice,
    by whatever paths, counts once, by the first of them.

    Raises RecipeMismatch for one of another environment, and where they differ in observation or action space.
    """
    datasets = [Dataset.open(path, 0 if number else episodes, env) for number, path in enumerate(distinct(paths))]
    first = datasets[0]
    for dataset in datasets:
        require_env(dataset, env)
    for other in datasets[1:]:
        for field in ("env", "action_space"):
            if (theirs := _observed(other.recipe[field])) != (ours := _observed(first.recipe[field])):
                raise RecipeMismatch(
                    f"{other.path} and {first.path} cannot be trained on together: their {field} differs "
                    f"({theirs} and {ours}); collect one of them again."
                )
    return datasets


def require_env(dataset: Dataset, env: str) -> None:
    """Raise RecipeMismatch if the episodes are those of another environment."""
    if (name := dataset.recipe["env"]["name"]) != env:
        raise RecipeMismatch(
            f"{dataset.path} has episodes of {name} but --env is {env}; give a dataset of {env} with --data, or "
            f"--env {name}."
        )


def _observed(recipe: dict[str, Any]) -> dict[str, Any]:
    """What must agree. Renderers draw the same pixels, or nearly so; frames of several of them may be mixed, and
    episodes of different limits."""
    free = ("render", "max_steps", "envs_per_process")
    return {name: value for name, value in recipe.items() if name not in free}


def fingerprints(datasets: Sequence[Dataset]) -> dict[str, str]:
    """The fingerprints of the datasets, as inputs of an artifact."""
    return {f"episodes {number}" if number > 1 else "episodes": d.fingerprint for number, d in enumerate(datasets, 1)}


def batch_sizes(batch: int, mixture: str, datasets: Sequence[Dataset], later_weight: float = 1.0) -> list[int]:
    """How much of a batch comes from each dataset: by the weights in `mixture`, such as `0.3,0.7`, or by their rows,
    of which those after the first dataset count `later_weight` times.

    Raises UsageProblem unless there is a weight above 0 for each dataset.
    """
    if not mixture:
        return split_batch(batch, [d.rows * (later_weight if number else 1.0) for number, d in enumerate(datasets)])
    try:
        weights = [float(text) for text in mixture.split(",")]
    except ValueError:
        # What is no number is told below, with what a mixture looks like.
        weights = []
    if len(weights) != len(datasets) or not all(0 < weight <= LARGEST_NUMBER for weight in weights):
        raise UsageProblem(
            f"mixture is {mixture[:80]!r}; expected a number above 0 for each of the {len(datasets)} datasets, "
            "separated by commas."
        )
    return split_batch(batch, weights)


def split_batch(batch: int, weights: Sequence[float]) -> list[int]:
    """Split a batch into whole parts close to the weights, none of them empty. Raises UsageProblem where the batch is
    smaller than the number of weights."""
    if batch < len(weights):
        raise UsageProblem(f"--batch is {batch} but there are {len(weights)} datasets; give a larger batch.")
    share = np.array(weights, np.float64) / sum(weights)
    # Rounded at the edges, not part by part: the parts then always add up to the batch.
    edges = np.round(np.cumsum(share) * (batch - len(share))).astype(int)
    return [int(part) + 1 for part in np.diff(edges, prepend=0)]


def _rows_of_each(piece: Piece, sizes: Sequence[int]) -> list[tuple[int, tuple[int, int]]]:
    """The sources, of which a batch has so many rows each, that a piece of the batch has rows of, and which."""
    (first, stop), begin, rows_of_each = piece.rows(sum(sizes)), 0, []
    for number, size in enumerate(sizes):
        rows = max(first - begin, 0), min(stop - begin, size)
        if rows[0] < rows[1]:
            rows_of_each.append((number, rows))
        begin += size
    return rows_of_each


class FrameMixture:
    """Batches of frames, each with a part from every source."""

    def __init__(self, sources: Sequence[FrameBatches]) -> None:
        self._sources = sources

    @property
    def nbytes(self) -> int:
        """Bytes of the frames that are decoded at present."""
        return sum(source.nbytes for source in self._sources)

    @property
    def size(self) -> int:
        """Frames of every batch."""
        return sum(source.size for source in self._sources)

    def at(self, step: int, out: NDArray[np.uint8], piece: Piece = WHOLE) -> NDArray[np.uint8]:
        """The batch of a step, or that piece of it, in the first rows of `out`. Other frames are not copied."""
        filled = 0
        for number, rows in _rows_of_each(piece, [source.size for source in self._sources]):
            filled += len(self._sources[number].at(step, out[filled:], rows))
        return out[:filled]

    def describe(self, step: int) -> str:
        """The batch of a step, described for messages."""
        return "; ".join(source.describe(step) for source in self._sources)


class WindowMixture:
    """Batches of windows, each with a part from every source."""

    def __init__(self, sources: Sequence[Windows]) -> None:
        self._sources = sources

    @property
    def size(self) -> int:
        """Windows of every batch."""
        return sum(source.batch for source in self._sources)

    def at(self, step: int, piece: Piece = WHOLE) -> WindowBatch:
        """The batch of a step, or that piece of it. Other windows are not read."""
        sources = _rows_of_each(piece, [source.batch for source in self._sources])
        parts = [self._sources[number].at(step, rows) for number, rows in sources]
        return WindowBatch(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(WindowBatch)))

    def existing(self, step: int) -> NDArray[np.float32]:
        """In how many windows of the whole batch each step is within the episode, (L,)."""
        return np.sum([source.existing(step) for source in self._sources], axis=0, dtype=np.float32)

    def describe(self, step: int) -> str:
        """The batch of a step, described for messages."""
        return "; ".join(source.describe(step) for source in self._sources)
