"""A dataset on disk: its episodes, per-episode table and columns."""

import shlex
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.artifacts import durable, json_reader, manifest, schemas
from wm.artifacts.manifest import sha256_json
from wm.artifacts.workspace import Workspace, env_slug
from wm.episodes import mirror as mirrors
from wm.episodes.committed_parts import Part, committed_parts, gaps, longer_part, require_values, unexplained_gaps
from wm.episodes.parts import ROOT_KIND as KIND
from wm.episodes.schema import FORMAT, STEPS, TABLE_COLUMNS, Episode, action_repeat, array_specs, frame_shape
from wm.episodes.shards import ReplacedShard, Shard, require_memory
from wm.errors import BadData, MissingInput

_ROOT = json_reader.table({"recipe": schemas.DATASET_RECIPE}, others=json_reader.ANYTHING)


def fingerprint_of(recipe: dict[str, Any]) -> str:
    """Identity of a dataset, independent of the number of its episodes."""
    return sha256_json({"kind": KIND, "format": FORMAT, "recipe": recipe})


class Dataset:
    """A dataset on disk, or its episodes below index `upto` (0: all).

    `collected` is the number of episodes ever written, `missing` the ranges of lost or evicted ones, and `episodes` the
    number of readable ones.
    """

    def __init__(self, path: Path, recipe: dict[str, Any], parts: Sequence[Part], upto: int = 0) -> None:
        self.path, self.recipe, self._all_parts = path, recipe, parts
        self.collected = parts[-1].last if parts else 0
        if upto > self.collected:
            raise MissingInput(
                f"{path} has {self.collected} episodes but {upto} are needed; run `wm collect` with the same options "
                f"and --episodes {upto} first."
            )
        self.upto = upto or self.collected
        self.missing = [(first, min(last, self.upto)) for first, last in gaps(parts) if first < self.upto]
        self.parts = [part for part in parts if part.first < self.upto]
        self.episodes = self.upto - sum(last - first for first, last in self.missing)

    @classmethod
    def open(cls, path: Path, upto: int = 0, env: str = "") -> "Dataset":
        """Read the root and the parts' tables. Raises MissingInput or BadData with one sentence; `env` is as in
        `read_root`."""
        recipe = read_root(path, env)
        dataset = cls(path, recipe, committed_parts(path, recipe), upto)
        dataset.require_complete()
        return dataset

    def require_complete(self) -> None:
        """Raise BadData if episodes are missing that were neither quarantined nor evicted."""
        for first, last in unexplained_gaps(self.path, self._all_parts, bool(self.recipe.get("evicts"))):
            raise BadData(
                f"{self.path} has lost episodes {first} to {last - 1}; run `wm collect` with the same options to play "
                f"them again, or `wm verify {shlex.quote(str(self.path))} --repair` to continue without them."
            )

    def first(self, count: int) -> "Dataset":
        """The same dataset limited to episodes below index `count` (0: all), without reading from disk."""
        return Dataset(self.path, self.recipe, self._all_parts, count)

    def at_most(self, count: int) -> "Dataset":
        """The same limited to `count` episodes, or to those that are here: a shared run has few."""
        return self.first(min(count, self.collected))

    def absent(self, upto: int) -> list[int]:
        """Indices below `upto` of the missing episodes, in the order in which a writer takes them."""
        lost = [episode for first, last in self.missing for episode in range(first, last)]
        return [episode for episode in [*lost, *range(self.collected, upto)] if episode < upto]

    @property
    def fingerprint(self) -> str:
        """Identity as an input: the recipe and the episodes in use."""
        return self.fingerprint_of_first(self.upto)

    def fingerprint_of_first(self, episodes: int) -> str:
        """The fingerprint of so many episodes, which may be more than are here: a seed makes them all."""
        used: dict[str, Any] = {"dataset": fingerprint_of(self.recipe), "episodes": episodes}
        if self.recipe.get("evicts"):  # what a Dreamer played does not follow from the recipe
            used["parts"] = [manifest.sha256_file(part.folder / manifest.NAME) for part in self.parts]
        return sha256_json(used | ({"missing": self.missing} if self.missing else {}))

    @property
    def actions(self) -> ActionSpace:
        """The environment's action space."""
        return ActionSpace.from_json(self.recipe["action_space"])

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """(size, size, channels)."""
        return frame_shape(self.recipe)

    @property
    def label_names(self) -> list[str]:
        """Names of the label columns; empty without labels."""
        return list(self.recipe["labels"])

    @cached_property
    def table(self) -> dict[str, NDArray[Any]]:
        """Per-episode columns over all parts; `ends` counts rows from the start of the dataset, `steps` those of the
        environment."""
        tables = [part.table for part in self.parts]
        columns = {name: np.array([*chain(*(table[name] for table in tables))]) for name in TABLE_COLUMNS}
        rows = np.array([part.rows for part in self.parts], np.int64)
        counts = np.array([len(table["ends"]) for table in tables], np.int64)
        # int64: parts count in what JSON gave them, and a billion frames times an action's repeats pass 32 bits.
        columns["ends"] = columns["ends"].astype(np.int64) + np.repeat(np.cumsum(rows) - rows, counts)
        columns[STEPS] = action_repeat(self.recipe) * (np.diff(columns["ends"], prepend=0) - 1)
        for table, count, last in zip(tables, counts, np.cumsum(counts), strict=True):
            if STEPS in table:
                columns[STEPS][last - count : last] = table[STEPS]
        return {name: values[: self.episodes] for name, values in columns.items()}

    @property
    def ends(self) -> NDArray[np.int64]:
        """Exclusive end row of every episode."""
        return self.table["ends"].astype(np.int64)

    @property
    def env_steps(self) -> int:
        """The environment's steps in the episodes in use."""
        return int(self.table[STEPS].sum())

    @property
    def rows(self) -> int:
        """Rows of the episodes in use."""
        return int(self.ends[-1]) if self.episodes else 0

    @property
    def bytes(self) -> int:
        """The size of all parts; of a mirrored dataset, in the object store."""
        mirror = mirrors.of(self.path)
        size = durable.folder_size if mirror is None else mirror.part_bytes
        return sum(size(part.folder) for part in self.parts)

    def shard(self, part: Part, name: str) -> Shard:
        """An array of a part, also when a writer has replaced it by a longer one. Raises BadData unless its shape and
        type are those of the recipe."""

        def find() -> Shard | None:
            longer = longer_part(part, self.recipe)
            return None if longer is None else self.shard(longer, name)

        folder, spec = manifest.locate(part.folder, name), array_specs(self.recipe, part.rows)[name]
        mirror = mirrors.of(self.path)
        return ReplacedShard(Shard(folder, spec) if mirror is None else mirror.shard(folder, spec), find)

    def column(self, name: str) -> NDArray[Any]:
        """`actions`, `rewards` or `labels` of all rows, decoded into RAM."""
        if name == "labels" and not self.label_names:
            return np.zeros((self.rows, 0), np.float32)
        specs = [array_specs(self.recipe, part.rows)[name] for part in self.parts]
        require_memory(2 * sum(spec.chunk_bytes for spec in specs), self.path)  # joined, they are there twice
        return np.concatenate([self._all(part, name) for part in self.parts])[: self.rows]

    def _all(self, part: Part, name: str) -> NDArray[Any]:
        values = self.shard(part, name).all()
        require_values(part.folder, name, values)
        return values

    def episodes_of(self, part: Part) -> list[Episode]:
        """Every episode of a part, frames decoded."""
        columns = {name: self._all(part, name) for name in array_specs(self.recipe, part.rows)}
        columns.setdefault("labels", np.zeros((part.rows, 0), np.float32))
        episodes, start = [], 0
        for number, end in enumerate(part.table["ends"]):
            episodes.append(
                Episode(
                    index=part.table["index"][number],
                    seed=part.table["seed"][number],
                    terminated=part.table["terminated"][number],
                    truncated=part.table["truncated"][number],
                    env_steps=part.table[STEPS][number] if STEPS in part.table else 0,
                    **{name: values[start:end] for name, values in columns.items()},
                )
            )
            start = end
        return episodes


def read_root(path: Path, env: str = "") -> dict[str, Any]:
    """The recipe of the dataset at `path`. Where there is none, the command that collects one is named if the
    environment is known: a path does not tell it."""
    if not (path / manifest.NAME).is_file():
        if path.exists():
            raise MissingInput(f"{path} is not a dataset; give a dataset, such as data/Pong.zarr.")
        raise MissingInput(f"{path} does not exist; {way_to_collect(path, env)}.")
    root = manifest.read(path, KIND)
    if root.get("format") != FORMAT:
        raise BadData(f"{path} has format {str(root.get('format'))[:40]}; this version reads format {FORMAT}.")
    json_reader.validate(root, str(path / manifest.NAME), _ROOT, "restore it or collect again")
    recipe: dict[str, Any] = root["recipe"]
    return recipe


def way_to_collect(path: Path, env: str) -> str:
    """What to do where the dataset `path` is missing or empty; `env` may be empty."""
    if not env:
        return "`wm ls` shows what there is, and `wm collect` plays episodes"
    workspace = Workspace(env, Path(), (path,))
    usual = path == Path("data") / f"{env_slug(env)}.zarr"
    return f"run `{workspace.command('collect')}{'' if usual else f' --data {shlex.quote(str(path))}'}` first"
