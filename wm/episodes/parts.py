"""Writing a part: a Zarr v3 group of whole episodes, staged, fsynced, renamed, never changed."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.artifacts import durable, manifest
from wm.episodes.schema import CHUNK_ROWS, FORMAT, TABLE_COLUMNS, Episode, frame_shape, part_name, zstd_level
from wm.episodes.shards import METADATA, ShardEncoder, array_files
from wm.errors import BadData

KIND = "part"
ROOT_KIND = "episodes"
STAGING = ".staging"


def group_metadata(attributes: dict[str, Any]) -> bytes:
    """The zarr.json of a group."""
    return durable.canonical_json({"zarr_format": 3, "node_type": "group", "attributes": attributes})


def root_files(recipe: dict[str, Any]) -> dict[str, bytes]:
    """The files of an empty dataset, by name."""
    body = {"kind": ROOT_KIND, "format": FORMAT, "recipe": recipe}
    files = {METADATA: group_metadata(body)}
    return files | {manifest.NAME: manifest.of(body, files)}


class PartBuilder:
    """The episodes of a part, compressed as they come; `commit` may be called again after more were added."""

    def __init__(self, root: Path, recipe: dict[str, Any], first: int) -> None:
        self.root, self.recipe, self.first = root, recipe, first
        self._frames = ShardEncoder(frame_shape(recipe), "uint8", CHUNK_ROWS, zstd_level(recipe))
        self._columns: dict[str, list[NDArray[Any]]] = {"actions": [], "rewards": [], "labels": []}
        self._table: dict[str, list[Any]] = {name: [] for name in TABLE_COLUMNS}

    @property
    def rows(self) -> int:
        """Rows so far."""
        return self._frames.rows

    @property
    def last(self) -> int:
        """Index of the episode that comes next."""
        return self.first + len(self._table["index"])

    def add(self, episode: Episode) -> None:
        """Append the next episode. Raises BadData for one whose rewards are not all numbers."""
        if episode.index != self.last:
            raise ValueError(f"episode {episode.index} does not follow {self.last - 1}")
        if not np.isfinite(episode.rewards).all():
            step = int(np.flatnonzero(~np.isfinite(episode.rewards))[0])
            raise BadData(
                f"episode {episode.index} (seed {episode.seed}) has the reward {episode.rewards[step]} at step {step}; "
                "expected finite rewards from the environment."
            )
        self._frames.add(episode.frames)
        for name, values in self._columns.items():
            values.append(getattr(episode, name))
        entry = (
            episode.index,
            episode.seed,
            self.rows,
            episode.terminated,
            episode.truncated,
            float(episode.rewards.sum(dtype=np.float64)),
        )
        for name, value in zip(TABLE_COLUMNS, entry, strict=True):
            self._table[name].append(value)

    def files(self) -> dict[str, bytes]:
        """Everything the part's folder holds, by relative name."""
        arrays = {"frames": self._frames.files()}
        for name, values in self._columns.items():
            if name != "labels" or self.recipe["labels"]:
                arrays[name] = array_files(np.concatenate(values))
        attributes = {"format": FORMAT, "kind": KIND, "recipe": self.recipe, "episodes": self._table}
        found = {METADATA: group_metadata(attributes)}
        for name, files in arrays.items():
            found |= {f"{name}/{file}": data for file, data in files.items()}
        body = {"kind": KIND, "format": FORMAT, "name": part_name(self.first, self.last)}
        return found | {manifest.NAME: manifest.of(body, found)}

    def commit(self, allow: Callable[[int], None] | None = None) -> Path:
        """Make the part exist. Returns its folder. `allow` is told the bytes it takes and may raise.

        It exists from the rename on; a kill or an error before that leaves only staging, which is swept.
        """
        files = self.files()
        if allow is not None:
            allow(sum(map(len, files.values())))
        staged = self.root / STAGING / uuid.uuid4().hex[:12]
        final = self.root / part_name(self.first, self.last)
        durable.write_folder(staged, files)
        durable.publish(staged, final)
        return final
