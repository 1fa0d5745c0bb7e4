"""Opening a dataset: which parts are committed, which episodes they hold, and their columns.

A part exists when its manifest agrees. Of parts with the same start the longest counts; the others are superseded.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.artifacts import durable, manifest
from wm.artifacts.manifest import sha256_json
from wm.episodes.parts import KIND as PART
from wm.episodes.schema import FORMAT, TABLE_COLUMNS, Episode
from wm.episodes.shards import FrameShard
from wm.errors import BadData, MissingInput

KIND = "episodes"
INDEX = ".index.json"


@dataclass(frozen=True)
class Part:
    """A committed part: its folder, the episodes it holds and their rows."""

    folder: Path
    first: int
    last: int
    table: dict[str, list[Any]]

    @property
    def rows(self) -> int:
        """Number of rows, final frames included."""
        return int(self.table["ends"][-1])


def fingerprint_of(recipe: dict[str, Any]) -> str:
    """Identity of a dataset whatever its number of episodes."""
    return sha256_json({"kind": KIND, "format": FORMAT, "recipe": recipe})


class Dataset:
    """A dataset on disk, or its first `episodes` episodes (0: all)."""

    def __init__(self, path: Path, recipe: dict[str, Any], parts: Sequence[Part], episodes: int = 0) -> None:
        self.path, self.recipe = path, recipe
        held = parts[-1].last if parts else 0
        if episodes > held:
            raise MissingInput(
                f"{path} holds {held} episodes but {episodes} are asked for; "
                f"run `wm collect --env {recipe['env']['name']} --episodes {episodes}` first."
            )
        self.episodes = episodes or held
        self.parts = [part for part in parts if part.first < self.episodes]

    @classmethod
    def open(cls, path: Path, episodes: int = 0) -> "Dataset":
        """Read the root and the parts' tables. Raises MissingInput or BadData with one sentence."""
        if not (path / manifest.NAME).is_file():
            raise MissingInput(f"{path} is not a dataset; run `wm collect --env {path.stem}` first.")
        root = manifest.read(path, KIND)
        if root.get("format") != FORMAT:
            raise BadData(f"{path} has format {root.get('format')}; this version reads format {FORMAT}.")
        return cls(path, root["recipe"], committed_parts(path), episodes)

    @property
    def fingerprint(self) -> str:
        """Identity as an input: the recipe and how many episodes are used."""
        return sha256_json({"dataset": fingerprint_of(self.recipe), "episodes": self.episodes})

    @property
    def actions(self) -> ActionSpace:
        """The action space that was played in."""
        return ActionSpace.from_json(self.recipe["action_space"])

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """(size, size, channels)."""
        size = int(self.recipe["env"]["size"])
        return size, size, 1 if self.recipe["env"]["gray"] else 3

    @property
    def label_names(self) -> list[str]:
        """Names of the label columns, possibly none."""
        return list(self.recipe["labels"])

    @cached_property
    def table(self) -> dict[str, NDArray[Any]]:
        """Per-episode columns over all parts; `ends` counts rows from the start of the dataset."""
        columns: dict[str, list[Any]] = {name: [] for name in TABLE_COLUMNS}
        before = 0
        for part in self.parts:
            for name in TABLE_COLUMNS:
                values = part.table[name]
                columns[name] += [before + end for end in values] if name == "ends" else values
            before += part.rows
        return {name: np.array(values[: self.episodes]) for name, values in columns.items()}

    @property
    def ends(self) -> NDArray[np.int64]:
        """Exclusive end row of every episode."""
        return self.table["ends"].astype(np.int64)

    @property
    def rows(self) -> int:
        """Rows of the episodes in use."""
        return int(self.ends[-1]) if self.episodes else 0

    def column(self, name: str) -> NDArray[Any]:
        """`actions`, `rewards` or `labels` of all rows, decoded into RAM."""
        if name == "labels" and not self.label_names:
            return np.zeros((self.rows, 0), np.float32)
        values = [self._array(part, name)[...] for part in self.parts]
        return np.concatenate(values)[: self.rows]

    def _array(self, part: Part, name: str) -> Any:
        try:
            return zarr.open_array(part.folder / name, mode="r", zarr_format=3)
        except Exception as error:
            raise BadData(f"{part.folder / name} cannot be read: {error}; run `wm verify {self.path}`.") from None

    def episodes_of(self, part: Part) -> list[Episode]:
        """Every episode of a part, frames decoded."""
        shard = FrameShard(part.folder)
        frames = np.concatenate([shard.chunk(number) for number in range(shard.chunks)])
        actions, rewards = self._array(part, "actions")[...], self._array(part, "rewards")[...]
        labels = self._array(part, "labels")[...] if self.label_names else np.zeros((part.rows, 0), np.float32)
        found, start = [], 0
        for number, end in enumerate(part.table["ends"]):
            rows = slice(start, end)
            found.append(
                Episode(
                    index=part.table["index"][number],
                    seed=part.table["seed"][number],
                    frames=frames[rows],
                    actions=actions[rows],
                    rewards=rewards[rows],
                    labels=labels[rows],
                    terminated=part.table["terminated"][number],
                    truncated=part.table["truncated"][number],
                )
            )
            start = end
        return found


def committed_parts(path: Path) -> list[Part]:
    """The chain of parts from episode 0 on. Anything beyond a gap, and superseded parts, are left out."""
    cache = _read_index(path)
    by_start: dict[int, Part] = {}
    fresh: dict[str, Any] = {}
    for folder in sorted(path.glob("part-??????-??????")):
        stamp = _stamp(folder)
        entry = cache.get(folder.name)
        if entry is None or entry["stamp"] != stamp:
            entry = {"stamp": stamp, "table": _read_table(folder)}
        fresh[folder.name] = entry
        _, first, last = folder.name.split("-")
        by_start[int(first)] = Part(folder, int(first), int(last), entry["table"])
    if fresh != cache:
        _write_index(path, fresh)
    chain: list[Part] = []
    while (start := chain[-1].last if chain else 0) in by_start:
        chain.append(by_start[start])
    return chain


def _stamp(folder: Path) -> list[int]:
    try:
        status = (folder / manifest.NAME).stat()
    except OSError:
        raise BadData(f"{folder} has no manifest; run `wm verify {folder.parent}` and remove the folder.") from None
    return [status.st_size, status.st_mtime_ns]


def _read_table(folder: Path) -> dict[str, list[Any]]:
    listed = manifest.read(folder, PART)
    if listed["name"] != folder.name:
        raise BadData(f"{folder} holds {listed['name']}; parts must not be renamed.")
    path = folder / "zarr.json"
    if manifest.sha256_file(path) != listed["files"]["zarr.json"]["sha256"]:
        raise BadData(f"{path} does not match its checksum; run `wm verify {folder.parent}`.")
    table: dict[str, list[Any]] = json.loads(path.read_bytes())["attributes"]["episodes"]
    return table


def _read_index(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((path / INDEX).read_bytes())
        digest = found.pop("sha256")
        return found if digest == sha256_json(found) else {}
    except (OSError, ValueError, KeyError, AttributeError):
        return {}


def _write_index(path: Path, entries: dict[str, Any]) -> None:
    """The index is a cache: a read-only dataset does without."""
    try:
        durable.write_json(path / INDEX, {**entries, "sha256": sha256_json(entries)})
    except OSError:
        return
