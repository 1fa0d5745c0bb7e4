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

from wm.artifacts import durable
from wm.artifacts.disk import DiskBudget
from wm.episodes import selection
from wm.episodes.archive import record
from wm.episodes.dataset import Dataset, fingerprint_of, read_root
from wm.episodes.schema import SUFFIX, Episode
from wm.episodes.size_estimate import MARGIN
from wm.episodes.writer import write_whole
from wm.errors import DiskProblem, MissingInput, RecipeMismatch, UsageProblem

# What the episodes of one dataset must share. Renderers draw the same pixels, or nearly so, and limits may differ.
_SHARED = ("env_id", "crop", "frame_skip", "frames", "action_space", "sources")
_FREE: dict[str, Any] = {"render": "exact", "max_steps": 0, "envs_per_process": 0}  # with what a recipe leaves out
_FILES = 32  # of a part, with its folders


@dataclass(frozen=True)
class Taken:
    """Some episodes of a dataset: their rows in its table."""

    dataset: Dataset
    rows: NDArray[np.int64]

    @classmethod
    def all_of(cls, dataset: Dataset) -> "Taken":
        """Every episode. Raises MissingInput if there is none."""
        return cls(dataset, selection.select(dataset, "all"))

    @property
    def frames(self) -> int:
        """Rows of frames in these episodes."""
        return int(np.diff(self.dataset.ends, prepend=0)[self.rows].sum())

    @property
    def disk(self) -> int:
        """About how many bytes these episodes take in another dataset."""
        size = sum(durable.folder_size(part.folder) for part in self.dataset.parts)
        return int(size * self.frames / self.dataset.rows * MARGIN)


@dataclass(frozen=True)
class Edit:
    """A dataset to write: its recipe, and the episodes it takes, in order."""

    recipe: dict[str, Any]
    taken: Sequence[Taken]

    @property
    def episodes(self) -> int:
        """How many."""
        return sum(len(taken.rows) for taken in self.taken)


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
    taken = [Taken.all_of(dataset) for dataset in datasets]
    labels = list(dict.fromkeys(name for dataset in datasets for name in dataset.label_names))
    policies = dict.fromkeys(str(dataset.recipe.get("policy", "unknown")) for dataset in datasets)
    origin = {"operation": "merge", "datasets": [dataset.fingerprint for dataset in datasets]}
    if mixed := _mixed([dataset.recipe for dataset in datasets]):
        origin["mixed"] = mixed
    recipe = _without_own(first.recipe) | {"labels": labels, "policy": " and ".join(policies), "origin": origin}
    if len({dataset.recipe.get("seed") for dataset in datasets}) > 1:
        recipe.pop("seed", None)
    return Edit(recipe, taken)


def split(dataset: Dataset, at: int) -> tuple[Edit, Edit]:
    """The first `at` episodes, and the others. Raises UsageProblem unless each side has one."""
    rows = Taken.all_of(dataset).rows
    if not 0 < at < len(rows):
        raise UsageProblem(
            f"--at is {at} but {dataset.path} has {len(rows)} episodes; expected 1 to {len(rows) - 1}, so that both "
            "sides have some."
            if len(rows) > 1
            else f"{dataset.path} has a single episode, which cannot be split."
        )
    return _edit("split", dataset, rows[:at]), _edit("split", dataset, rows[at:])


def drop(dataset: Dataset, asked: str) -> Edit:
    """All episodes but those asked for, such as `3,5-7`. Raises MissingInput for one that does not exist, UsageProblem
    if none would be left."""
    dropped = selection.select(dataset, asked)
    rows = np.setdiff1d(np.arange(dataset.episodes), dropped)
    if not len(rows):
        raise UsageProblem(f"--episodes {asked} are all {dataset.episodes} of {dataset.path}; nothing would be left.")
    return _edit("drop", dataset, rows)


def _edit(operation: str, dataset: Dataset, rows: NDArray[np.int64]) -> Edit:
    indices = dataset.table["index"][rows]
    starts = np.flatnonzero(np.diff(indices, prepend=indices[0] - 2) != 1)
    ranges = [[int(run[0]), int(run[-1])] for run in np.split(indices, starts[1:])]
    origin = {"operation": operation, "datasets": [dataset.fingerprint], "episodes": ranges}
    return Edit(_without_own(dataset.recipe) | {"origin": origin}, [Taken(dataset, rows)])


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
        default = {"action_space": "auto", "observation": "rgb", "action_repeat": 1}.get(name)
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
    found = {name: dict.fromkeys(str(table[name]) for table in tables if table.get(name) is not None) for name in names}
    return [f"{name} {' and '.join(values)}" for name, values in found.items() if len(values) > 1]


def is_written(path: Path, edit: Edit) -> bool:
    """Whether `path` is the dataset of this edit already. Raises UsageProblem if it is something else."""
    if not path.exists() and not path.is_symlink():
        return False
    try:
        same = fingerprint_of(read_root(path)) == fingerprint_of(edit.recipe)
    except MissingInput:
        same = False
    if same and Dataset.open(path).episodes == edit.episodes:
        return True
    raise UsageProblem(f"{path} exists and is another dataset, or none; remove it, or name another path.")


def require_targets(edits: Sequence[tuple[Path, Edit]]) -> None:
    """Raise UsageProblem for a target without a dataset's suffix, inside a dataset that is read, or given twice."""
    for path, edit in edits:
        if path.suffix != SUFFIX:
            raise UsageProblem(f"{path} has no suffix {SUFFIX}; name it {path.name or 'data'}{SUFFIX}.")
        for taken in edit.taken:
            if taken.dataset.path.resolve() in path.resolve().parents:
                raise UsageProblem(f"{path} is inside the dataset {taken.dataset.path}; name a path outside of it.")
    if len({path.resolve() for path, _ in edits}) < len(edits):
        raise UsageProblem(f"{edits[0][0]} is given for two datasets; name a path for each.")


def require_disk(edits: Sequence[Edit], budget: DiskBudget) -> None:
    """Raise DiskProblem if the budget is too small for all of the datasets."""
    taken = [each for edit in edits for each in edit.taken]
    parts = sum(len(each.dataset.parts) for each in taken) + len(edits)
    need, episodes = sum(each.disk for each in taken), sum(edit.episodes for edit in edits)
    budget.require(need, 0, f"writing {episodes} episodes", _FILES * parts)


def allowance(path: Path, budget: DiskBudget) -> Callable[[int], None]:
    """What `write_whole` asks before each part of the dataset at `path`."""
    written = 0

    def allow(size: int) -> None:
        nonlocal written
        if size > budget.available(written):
            raise DiskProblem(
                f"the disk budget at {path} is used up; nothing was written, so free some space or raise "
                "--disk-budget, and run the same command again."
            )
        written += size

    return allow


def write(
    path: Path,
    edit: Edit,
    budget: DiskBudget,
    provenance: Callable[[], dict[str, Any]],
    progress: Callable[[int], None],
) -> None:
    """Write the dataset, whole or not at all. The caller holds the lock of `path`. `provenance` is asked at the end.
    Raises UsageProblem where two datasets have the same episode."""
    watch = _Duplicates(edit)
    with write_whole(path, edit.recipe, allowance(path, budget)) as writer:
        for taken in edit.taken:
            for batch in selection.read(taken.dataset, taken.rows):
                for episode in batch:
                    watch.check(episode, taken.dataset.path)
                    labels = _relabelled(episode, taken.dataset.label_names, edit.recipe["labels"])
                    writer.add(replace(episode, index=writer.next, labels=labels).pack())
                    progress(writer.next)
        record(writer.path, {"episodes": edit.episodes, **provenance()})


def _relabelled(episode: Episode, names: Sequence[str], wanted: Sequence[str]) -> NDArray[np.float32]:
    """The columns of labels of the new dataset; NaN for those that this episode's dataset does not know."""
    columns = np.full((episode.rows, len(wanted)), np.nan, np.float32)
    for column, name in enumerate(names):
        columns[:, wanted.index(name)] = episode.labels[:, column]
    return columns


class _Duplicates:
    """Finds the same episode twice. Only episodes of the same seed, length and return are compared."""

    def __init__(self, edit: Edit) -> None:
        tables = [(taken.dataset, taken.rows) for taken in edit.taken]
        keys = [key for dataset, rows in tables for key in self._keys(dataset, rows)]
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
