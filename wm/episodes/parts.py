"""Writing a part: a Zarr v3 group of whole episodes, staged, fsynced, renamed, never changed."""

import math
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.artifacts import durable, manifest
from wm.episodes import mirror as mirrors
from wm.episodes.schema import (
    CHUNK_ROWS,
    FORMAT,
    STEPS,
    TABLE_COLUMNS,
    PackedEpisode,
    action_repeat,
    array_specs,
    frame_shape,
    part_name,
)
from wm.episodes.shards import group_files
from wm.errors import BadData

# These two kinds are in every manifest on disk, so they never change.
KIND = "part"
ROOT_KIND = "episodes"
STAGING = ".staging"
# Frames that are decoded at once on their way into a part: 13 MB of 64 x 64 RGB, where a whole part has 110 MB.
DECODED_ROWS = 16 * CHUNK_ROWS


def root_files(recipe: dict[str, Any]) -> dict[str, bytes]:
    """The files of an empty dataset, by name."""
    body = {"kind": ROOT_KIND, "format": FORMAT, "recipe": recipe}
    files = group_files(body, {})
    return files | {manifest.NAME: manifest.of(body, files)}


def frame_block(recipe: dict[str, Any]) -> NDArray[np.uint8]:
    """Memory for the frames that are decoded at once."""
    return np.empty((DECODED_ROWS, *frame_shape(recipe)), np.uint8)


class PartBuilder:
    """The episodes of a part. They stay packed until `commit`, which may be called again after more were added.

    A writer of many parts shares one `block` between them: page faults of new memory took 40 of the 120 ms of writing
    a part.
    """

    def __init__(self, root: Path, recipe: dict[str, Any], first: int, block: NDArray[np.uint8] | None = None) -> None:
        self.root, self.recipe, self.first = root, recipe, first
        self._block = frame_block(recipe) if block is None else block
        self.rows = 0
        self._episodes: list[PackedEpisode] = []
        columns = (*TABLE_COLUMNS, STEPS) if action_repeat(recipe) > 1 else TABLE_COLUMNS
        self._table: dict[str, list[Any]] = {name: [] for name in columns}

    @property
    def table(self) -> dict[str, list[Any]]:
        """A copy of the per-episode table."""
        return {name: list(values) for name, values in self._table.items()}

    @property
    def last(self) -> int:
        """Index of the episode that comes next."""
        return self.first + len(self._episodes)

    def add(self, episode: PackedEpisode) -> None:
        """Append the next episode. Raises BadData for one whose rewards are not all numbers."""
        if episode.index != self.last:
            raise ValueError(f"episode {episode.index} does not follow {self.last - 1}")
        # float64: a sum of float32 depends on the order in which numpy adds, and the return is compared later.
        total = float(episode.rewards.sum(dtype=np.float64))  # of float32: no sum of numbers overflows
        if not math.isfinite(total):
            step = int(np.flatnonzero(~np.isfinite(episode.rewards))[0])
            raise BadData(
                f"episode {episode.index} (seed {episode.seed}) has the reward {episode.rewards[step]} at step {step}; "
                "expected finite rewards from the environment."
            )
        self._episodes.append(episode)
        self.rows += episode.rows
        entry = (
            episode.index,
            episode.seed,
            self.rows,
            episode.terminated,
            episode.truncated,
            total,
            episode.steps,
        )
        for column, value in zip(self._table.values(), entry, strict=False):
            column.append(value)

    def files(self) -> dict[str, bytes]:
        """The files of the part's folder, by relative name."""
        arrays = {name: (spec, self._pieces(name)) for name, spec in array_specs(self.recipe, self.rows).items()}
        attributes = {"format": FORMAT, "kind": KIND, "recipe": self.recipe, "episodes": self._table}
        files = group_files(attributes, arrays)
        body = {"kind": KIND, "format": FORMAT, "name": part_name(self.first, self.last)}
        return files | {manifest.NAME: manifest.of(body, files)}

    def _pieces(self, name: str) -> Iterator[NDArray[Any]]:
        """The rows of a column: frames in blocks of whole chunks, the others at once."""
        if name == "frames":
            return self._frame_blocks()
        return iter([np.concatenate([getattr(episode, name) for episode in self._episodes])])

    def _frame_blocks(self) -> Iterator[NDArray[np.uint8]]:
        """All frames in blocks of `DECODED_ROWS` rows. The next block overwrites the previous one."""
        block, filled = self._block, 0
        for episode in self._episodes:
            reader, start = episode.open_frames(), 0
            while start < episode.rows:
                rows = min(episode.rows - start, len(block) - filled)
                reader.readinto(block[filled : filled + rows].data)
                start, filled = start + rows, filled + rows
                if filled == len(block):
                    yield block
                    filled = 0
        if filled:
            yield block[:filled]

    def commit(self, allow: Callable[[int], None] | None = None) -> Path:
        """Write the part and rename it to its name. Returns its folder. `allow` takes its bytes and may raise.

        It exists from the rename on; a kill or an error before that leaves only staging, which is swept. In an object
        store it exists from its manifest on.
        """
        files = self.files()
        if allow is not None:
            allow(sum(map(len, files.values())))
        final = self.root / part_name(self.first, self.last)
        if (mirror := mirrors.of(self.root)) is not None:
            mirror.put_part(final.name, files)
        else:
            # 48 bits of chance; two processes may stage parts of the same dataset.
            staged = self.root / STAGING / uuid.uuid4().hex[:12]
            durable.write_folder(staged, files)
            durable.publish(staged, final)
        return final
