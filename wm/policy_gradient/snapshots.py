"""Policies along a training, at equal distances: `wm dream` ranks them in the dream and in reality."""

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.artifacts.json_reader import COUNT, LARGEST, Mismatch, Schema, between, list_of

MOST = 16  # so many are kept; of more, every second one stays


def _iterations(value: Any, key: str) -> None:
    """The schema of their iterations."""
    list_of(COUNT)(value, key)
    if len(value) > MOST:
        raise Mismatch(key, f"a list of {len(value)} values", f"at most {MOST}")


class Snapshots:
    """The parameters of at most MOST policies in `rows` (MOST, P), a tensor that a checkpoint holds, and the iterations
    they are of."""

    # One iteration between two of them at first, doubled whenever MOST are kept.
    state_schema: ClassVar[dict[str, Schema]] = {"snapshots": _iterations, "spacing": between(1, LARGEST)}

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self.iterations: list[int] = []
        self._spacing = 1

    def keep(self, iteration: int, parameters: NDArray[np.float32]) -> None:
        """Keep this policy if its turn has come."""
        if (iteration - 1) % self._spacing:
            return
        if len(self.iterations) == MOST:
            self._spacing *= 2
            self.iterations = self.iterations[::2]
            self._rows[: MOST // 2] = self._rows[::2].clone()
            if (iteration - 1) % self._spacing:
                return
        self._rows[len(self.iterations)] = torch.from_numpy(parameters)
        self.iterations = [*self.iterations, iteration]

    def parameters(self) -> NDArray[np.float32]:
        """(policies, P)."""
        return self._rows[: len(self.iterations)].numpy().copy()

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs besides the rows."""
        return {"snapshots": self.iterations, "spacing": self._spacing}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.iterations, self._spacing = state["snapshots"], state["spacing"]
