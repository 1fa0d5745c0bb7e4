"""Latents: mean and log-variance of every frame under V, stored once, aligned with the rows of the episodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.artifacts import durable, json_reader, manifest, schemas
from wm.artifacts.json_reader import ANYTHING, between, table
from wm.episodes.shards import METADATA, ArraySpec, Shard, group_files
from wm.errors import BadData, MemoryProblem, RecipeMismatch, UsageProblem
from wm.stats import LARGEST_REWARD
from wm.units import format_size

ARRAYS = "latents.zarr"
CHUNK_ROWS = 4096  # 260 kB of 32 half floats each
_MANY = between(1, 1 << 31)  # a forged number must not allocate all memory
_ATTRIBUTES = table({"action_space": schemas.action_space, "rows": _MANY, "latent": schemas.WIDTH, "episodes": _MANY})
_METADATA = table({"attributes": _ATTRIBUTES}, others=ANYTHING)


@dataclass(frozen=True)
class Latents:
    """Columns over all rows: `means`, `logvars` (rows, z), `actions`, `rewards`, and `lost`, whether a frame shows that
    a life was lost; empty where the dataset does not tell. Columns over the episodes: `ends`, `terminated`, `seeds`. Of
    several datasets, `joined` has the number of episodes of each."""

    means: NDArray[np.float32]
    logvars: NDArray[np.float32]
    actions: NDArray[np.generic]
    rewards: NDArray[np.float32]
    ends: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    seeds: NDArray[np.int64]
    space: ActionSpace
    joined: tuple[int, ...] = ()
    lost: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))

    @property
    def rows(self) -> int:
        """Number of encoded frames."""
        return len(self.means)

    @property
    def starts(self) -> NDArray[np.int64]:
        """First row of every episode."""
        return np.concatenate([[0], self.ends[:-1]]).astype(np.int64)

    def files(self) -> dict[str, bytes]:
        """The files of a Zarr group with these arrays, by relative name. Latents are half floats: their error of 1e-3
        is far below V's noise."""
        rows, latent = self.means.shape
        attributes = {
            "action_space": self.space.as_json(),
            "rows": rows,
            "latent": latent,
            "episodes": len(self.ends),
        }
        specs = _array_specs(attributes)
        if not len(self.lost):
            del specs["lost"]
        return group_files(
            attributes, {name: (spec, [getattr(self, name).astype(spec.dtype)]) for name, spec in specs.items()}
        )

    def save(self, folder: Path) -> None:
        """Write the files below `folder`, in place of those of a killed process."""
        durable.remove(folder / ARRAYS)
        durable.write_folder(folder / ARRAYS, self.files())

    @classmethod
    def load(cls, folder: Path) -> "Latents":
        """Read what `save` wrote. Raises BadData for other contents, and MemoryProblem for more than free memory holds:
        any number of zeros compresses to little."""
        attributes = _read_attributes(folder)
        need, free = decoded_bytes(folder), psutil.virtual_memory().available
        if need > free:
            raise MemoryProblem(
                f"{folder} takes {format_size(need)} of memory and {format_size(free)} are free; end other programs, "
                f"or remove {folder} and train on fewer --data."
            )
        space = ActionSpace.from_json(attributes["action_space"])
        specs = _array_specs(attributes)
        if not (folder / ARRAYS / "lost").exists():
            del specs["lost"]
        columns: dict[str, Any] = {name: Shard(folder / ARRAYS / name, spec).all() for name, spec in specs.items()}
        # float32 for arithmetic: CPUs compute half floats by conversion, number by number.
        columns["means"] = columns["means"].astype(np.float32)
        columns["logvars"] = columns["logvars"].astype(np.float32)
        latents = cls(**columns, space=space)
        if problem := latents._problem():
            raise BadData(f"{folder / ARRAYS / problem}, so remove {folder} to encode again.")
        return latents

    def _problem(self) -> str:
        """The first column with values that no encoding writes, and what was expected; empty if all can be."""
        for name in ("means", "logvars"):
            if not np.isfinite(getattr(self, name)).all():
                return f"{name} has values that are not finite; expected numbers"
        if not (np.abs(self.rewards) <= LARGEST_REWARD).all():
            return f"rewards has values that cannot be; expected finite numbers of at most {LARGEST_REWARD:g} in size"
        if not len(self.ends) or self.ends[-1] != self.rows or (np.diff(self.ends, prepend=0) <= 0).any():
            return f"ends has {self.ends[:8]}; expected numbers that rise from above 0 to {self.rows}"
        try:
            self.space.require(self.actions)
        except UsageProblem as error:
            return f"actions is wrong: {str(error).rstrip('.')}"
        return ""


def _array_specs(attributes: dict[str, Any]) -> dict[str, ArraySpec]:
    rows, episodes = int(attributes["rows"]), int(attributes["episodes"])
    actions = ActionSpace.from_json(attributes["action_space"]).column(0)
    # Half the bytes of float32: mean and logvar of 10**8 frames with 32 latents have 13 GB.
    latents = ArraySpec((rows, int(attributes["latent"])), "float16", min(CHUNK_ROWS, rows))
    return {
        "means": latents,
        "logvars": latents,
        "actions": ArraySpec((rows, *actions.shape[1:]), actions.dtype.name, rows),
        "rewards": ArraySpec((rows,), "float32", rows),
        "lost": ArraySpec((rows,), "bool", rows),
        "ends": ArraySpec((episodes,), "int64", episodes),
        "terminated": ArraySpec((episodes,), "bool", episodes),
        "seeds": ArraySpec((episodes,), "int64", episodes),
    }


def decoded_bytes(folder: Path) -> int:
    """What the latents in an artifact's folder take in memory, as their metadata says, before they are read."""
    attributes = _read_attributes(folder)
    return 2 * 4 * int(attributes["rows"]) * int(attributes["latent"])  # means and logvars as float32


def _read_attributes(folder: Path) -> dict[str, Any]:
    path = folder / ARRAYS / METADATA
    attributes: dict[str, Any] = json_reader.read(path, _METADATA, f"remove {folder} to encode again")["attributes"]
    return attributes


def read_latents(folder: Path) -> Latents:
    """The latents in an artifact's folder, every checksum verified."""
    manifest.verify(folder, "latents")
    return Latents.load(folder)


def join(parts: Sequence[Latents]) -> Latents:
    """The latents of several datasets as one, in order; of one they are its own, without a copy. Raises RecipeMismatch
    where their actions differ."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.space != first.space for part in parts):
        raise RecipeMismatch("the datasets were played with different actions; give --data of the same --action-space.")
    offsets = np.cumsum([0, *(part.rows for part in parts)])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("means", "logvars", "actions", "rewards", "terminated", "seeds")
    }
    if len(first.lost):  # a later part that does not tell of lives has lost none
        columns["lost"] = np.concatenate([part.lost if len(part.lost) else np.zeros(part.rows, bool) for part in parts])
    ends = np.concatenate([part.ends + offset for part, offset in zip(parts, offsets, strict=False)])
    return Latents(**columns, ends=ends, space=first.space, joined=tuple(len(part.ends) for part in parts))
