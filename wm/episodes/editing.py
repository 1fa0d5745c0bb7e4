"""New datasets from the episodes of others: merged, split, or without some of them.

A dataset is immutable, so an edit writes another one, with its episodes numbered from 0. Its recipe has an `origin`:
the operation, the fingerprints of the datasets, and the episodes that were taken. So it has a fingerprint of its own,
and `wm collect` does not add episodes to it.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.artifacts import durable, manifest
from wm.episodes import schema, selection
from wm.episodes.dataset import Dataset
from wm.episodes.schema import Episode
from wm.episodes.size_estimate import MARGIN
from wm.episodes.writer import Writer
from wm.errors import RecipeMismatch, UsageProblem

# What the episodes of one dataset must share. Renderers draw the same pixels, or nearly so, and limits may differ.
_SHARED = ("env_id", "crop", "frame_skip", "frames", "action_space", "sources")
_FREE: dict[str, Any] = {"render": "exact", "max_steps": 0, "envs_per_process": 0}  # with what a recipe leaves out
_FILES = 32  # of a part, with its folders
_METADATA = 1 << 14  # bytes of a part's, without its recipe: 10 kB of labelled episodes
_INDENTED = 3  # times as long as our JSON is zarr-python's, which indents numbers in lists by 14 spaces
# Ranges of episodes that a recipe lists; of more it has a digest. Every part has the recipe, in a file that may have a
# megabyte: of 10,000 ranges it would have 400 kB.
MOST_RANGES = 256


@dataclass(frozen=True)
class Source:
    """Some episodes of a dataset: their rows in its table."""

    dataset: Dataset
    rows: NDArray[np.int64]

    @classmethod
    def all_of(cls, dataset: Dataset) -> "Source":
        """Every episode. Raises MissingInput if there is none."""
        return cls(dataset, selection.select(dataset, "all"))

    @property
    def frames(self) -> int:
        """Rows of frames in these episodes."""
        return int(np.diff(self.dataset.ends, prepend=0)[self.rows].sum())

    @property
    def disk(self) -> int:
        """About how many bytes these episodes take in another dataset."""
        return int(self.dataset.bytes * self.frames / self.dataset.rows * MARGIN)


@dataclass(frozen=True)
class Edit:
    """A dataset to write: its recipe, and the episodes it takes, in order."""

    recipe: dict[str, Any]
    sources: Sequence[Source]

    @property
    def read(self) -> list[Path]:
        """The datasets it takes episodes from."""
        return [source.dataset.path for source in self.sources]

    @property
    def episodes(self) -> int:
        """How many it takes."""
        return sum(len(source.rows) for source in self.sources)

    @property
    def need(self) -> tuple[int, int]:
        """About how many bytes and files it takes."""
        frames = sum(source.frames for source in self.sources)
        # At most: a part ends at PART_ROWS rows or at a multiple of BLOCK_EPISODES, whichever comes first.
        parts = 1 + frames // schema.PART_ROWS + self.episodes // schema.BLOCK_EPISODES
        metadata = _METADATA + _INDENTED * len(durable.canonical_json(self.recipe))
        return sum(source.disk for source in self.sources) + metadata * parts, _FILES * parts

    def write(self, writer: Writer, progress: Callable[[int], None]) -> None:
        """Add every episode. Raises UsageProblem where two datasets have the same one."""
        watch = _Duplicates(self.sources)
        for source in self.sources:
            for batch in selection.read(source.dataset, source.rows):
                for episode in batch:
                    watch.check(episode, source.dataset.path)
                    labels = _relabelled(episode, source.dataset.label_names, self.recipe["labels"])
                    writer.add(replace(episode, index=writer.next, labels=labels).pack())
                    progress(writer.next)


def merge(datasets: Sequence[Dataset]) -> Edit:
    """All episodes of the datasets, one dataset after the other.

    Raises UsageProblem for a single dataset, RecipeMismatch naming the first thing in which they differ: environment,
    frames or actions.
    """
    if len({dataset.path.resolve() for dataset in datasets}) < max(len(datasets), 2):
        raise UsageProblem("merging takes two or more different datasets; give each of them once.")
    first = datasets[0]
    for other in datasets[1:]:
        _require_same(first, other)
    sources = [Source.all_of(dataset) for dataset in datasets]
    labels = list(dict.fromkeys(name for dataset in datasets for name in dataset.label_names))
    policies = dict.fromkeys(str(dataset.recipe.get("policy", "unknown")) for dataset in datasets)
    origin = _origin("merge", datasets)
    if mixed := _mixed([dataset.recipe for dataset in datasets]):
        origin["mixed"] = mixed
    recipe = _without_own(first.recipe) | {"labels": labels, "policy": " and ".join(policies), "origin": origin}
    if len({dataset.recipe.get("seed") for dataset in datasets}) > 1:
        recipe.pop("seed", None)
    return Edit(recipe, sources)


def split(dataset: Dataset, at: int) -> tuple[Edit, Edit]:
    """The first `at` episodes, and the others. Raises UsageProblem unless each side has one."""
    rows = Source.all_of(dataset).rows
    if not 0 < at < len(rows):
        raise UsageProblem(
            f"--at is {at} but {dataset.path} has {len(rows)} episodes; expected 1 to {len(rows) - 1}, so that both "
            "sides have some."
            if len(rows) > 1
            else f"{dataset.path} has a single episode, which cannot be split."
        )
    return _edit("split", dataset, rows[:at]), _edit("split", dataset, rows[at:])


def drop(dataset: Dataset, episodes: str) -> Edit:
    """All episodes but those asked for, such as `3,5-7`. Raises MissingInput for one that does not exist, UsageProblem
    if none would be left."""
    dropped = selection.select(dataset, episodes)
    rows = np.setdiff1d(np.arange(dataset.episodes), dropped)
    if not len(rows):
        raise UsageProblem(
            f"--episodes {episodes} are all {dataset.episodes} of {dataset.path}; nothing would be left."
        )
    return _edit("drop", dataset, rows)


def _edit(operation: str, dataset: Dataset, rows: NDArray[np.int64]) -> Edit:
    indices = dataset.table["index"][rows]
    starts = np.flatnonzero(np.diff(indices, prepend=indices[0] - 2) != 1)
    ranges = [[int(run[0]), int(run[-1])] for run in np.split(indices, starts[1:])]
    which = {"episodes": ranges} if len(ranges) <= MOST_RANGES else {"digest": manifest.sha256_json(ranges)}
    origin = _origin(operation, [dataset]) | which
    return Edit(_without_own(dataset.recipe) | {"origin": origin}, [Source(dataset, rows)])


def _origin(operation: str, datasets: Sequence[Dataset]) -> dict[str, Any]:
    pieces = {"pieces": True} if any(schema.unit_of(dataset.recipe) == "piece" for dataset in datasets) else {}
    return {"operation": operation, "datasets": [dataset.fingerprint for dataset in datasets]} | pieces


def _without_own(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe without what is true of the dataset it belongs to alone."""
    return {name: value for name, value in recipe.items() if name not in ("evicts", "origin")}


def _require_same(first: Dataset, other: Dataset) -> None:
    for name, ours, theirs in _compared(first.recipe, other.recipe):
        if ours != theirs:
            raise RecipeMismatch(
                f"{first.path} and {other.path} cannot be merged: {name} is {_text(ours)} and {_text(theirs)}; merge "
                "datasets of the same environment, frames and actions."
            )


def _compared(first: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What must be equal: name, and the values of both."""
    for name in ("name", *(key for key in {**first["env"], **other["env"]} if key not in ("name", *_FREE))):
        default = {"action_space": "auto", "observation": "rgb", "action_repeat": 1, "mask": "none"}.get(name)
        label = "the environment" if name == "name" else name
        yield label, first["env"].get(name, default), other["env"].get(name, default)
    for name in _SHARED:
        if name in first and name in other:
            yield "the action space" if name == "action_space" else name, first[name], other[name]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mixed(recipes: Sequence[dict[str, Any]]) -> list[str]:
    """What differs in recipes that may be merged, such as `render exact and fast`; the first one's value is kept."""
    tables = [
        {**_FREE, **recipe["env"], **recipe.get("packages", {}), "seed": recipe.get("seed")} for recipe in recipes
    ]
    names = [*_FREE, *dict.fromkeys(name for recipe in recipes for name in recipe.get("packages", {})), "seed"]
    values_of = {
        name: dict.fromkeys(str(table[name]) for table in tables if table.get(name) is not None) for name in names
    }
    return [f"{name} {' and '.join(values)}" for name, values in values_of.items() if len(values) > 1]


def _relabelled(episode: Episode, names: Sequence[str], new_names: Sequence[str]) -> NDArray[np.float32]:
    """The columns of labels of the new dataset; NaN for those that this episode's dataset does not know."""
    # NaN and not zero: a probe leaves out what has no label, and zero would be a position.
    columns = np.full((episode.rows, len(new_names)), np.nan, np.float32)
    for column, name in enumerate(names):
        columns[:, new_names.index(name)] = episode.labels[:, column]
    return columns


class _Duplicates:
    """Finds the same episode in two datasets. Only episodes of the same seed and length are compared."""

    def __init__(self, sources: Sequence[Source]) -> None:
        keys = [key for source in sources for key in self._keys(source.dataset, source.rows)]
        self._suspects = {key for key, count in Counter(keys).items() if count > 1}
        self._seen: dict[bytes, Path] = {}

    @staticmethod
    def _keys(dataset: Dataset, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
        lengths = np.diff(dataset.ends, prepend=0)[rows]
        return list(zip(dataset.table["seed"][rows].tolist(), lengths.tolist(), strict=True))

    def check(self, episode: Episode, path: Path) -> None:
        """Raise UsageProblem if this episode has come before."""
        if (episode.seed, episode.rows) not in self._suspects:
            return
        digest = hashlib.sha256(episode.frames.data)
        digest.update(np.ascontiguousarray(episode.actions).data)
        digest.update(np.ascontiguousarray(episode.rewards).data)
        if (other := self._seen.setdefault(digest.digest(), path)) is not path:
            raise UsageProblem(
                f"episode {episode.index} of {path} (seed {episode.seed}) is in {other} too; drop it from one of them "
                "with `wm data drop`."
            )
