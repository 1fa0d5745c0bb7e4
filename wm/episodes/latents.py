"""Latents: mean and log-variance of every frame under V, stored once, aligned with the rows of the episodes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.episodes.parts import add_array
from wm.errors import BadData

ARRAYS = "latents.zarr"


@dataclass(frozen=True)
class Latents:
    """Columns over all rows: `means`, `logvars` (rows, z), `actions`, `rewards`; and per episode: `ends`, `terminated`,
    `truncated`, `seeds`."""

    means: NDArray[np.float32]
    logvars: NDArray[np.float32]
    actions: NDArray[np.generic]
    rewards: NDArray[np.float32]
    ends: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    seeds: NDArray[np.int64]
    space: ActionSpace

    @property
    def starts(self) -> NDArray[np.int64]:
        """First row of every episode."""
        return np.concatenate([[0], self.ends[:-1]]).astype(np.int64)

    def save(self, folder: Path) -> None:
        """Write the arrays below `folder` (half floats for the latents: 1e-3 of a unit is far below V's noise)."""
        group = zarr.open_group(
            folder / ARRAYS, mode="w", zarr_format=3, attributes={"action_space": self.space.as_json()}
        )
        for name in ("means", "logvars"):
            add_array(group, name, getattr(self, name).astype(np.float16), 4096)
        for name in ("actions", "rewards", "ends", "terminated", "seeds"):
            values = getattr(self, name)
            add_array(group, name, values, len(values))

    @classmethod
    def load(cls, folder: Path) -> "Latents":
        """Read what `save` wrote."""
        try:
            group = zarr.open_group(folder / ARRAYS, mode="r", zarr_format=3)
            columns = {name: np.asarray(array[...]) for name, array in group.arrays()}
            space = ActionSpace.from_json(dict(group.attrs)["action_space"])  # type: ignore[arg-type]
        except Exception as error:
            raise BadData(f"{folder / ARRAYS} cannot be read: {error}; remove {folder} and encode again.") from None
        columns["means"] = columns["means"].astype(np.float32)
        columns["logvars"] = columns["logvars"].astype(np.float32)
        return cls(**columns, space=space)
