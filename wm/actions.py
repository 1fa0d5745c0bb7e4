"""Action spaces as plain values: how actions are stored, and how they are encoded for M."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from wm.errors import UsageProblem


@dataclass(frozen=True)
class ActionSpace:
    """Discrete (`count` actions) or a box (`low`, `high` per dimension; `count` is 0)."""

    count: int = 0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @classmethod
    def of(cls, space: gym.Space[Any]) -> "ActionSpace":
        """Describe a gymnasium space. Raises UsageProblem for other kinds than Discrete and bounded flat Box."""
        if isinstance(space, gym.spaces.Discrete) and space.start == 0:
            return cls(count=int(space.n))
        if isinstance(space, gym.spaces.Box) and len(space.shape) == 1 and space.is_bounded():
            return cls(low=tuple(map(float, space.low)), high=tuple(map(float, space.high)))
        raise UsageProblem(f"action space {space} is not supported; expected Discrete or a bounded, flat Box.")

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ActionSpace":
        """The inverse of `as_json`."""
        return cls(count=int(value["count"]), low=tuple(value["low"]), high=tuple(value["high"]))

    def as_json(self) -> dict[str, Any]:
        """Plain values for a recipe."""
        return {"count": self.count, "low": list(self.low), "high": list(self.high)}

    @property
    def discrete(self) -> bool:
        """Whether an action is one of `count` numbers."""
        return self.count > 0

    @property
    def width(self) -> int:
        """Length of the encoded action vector."""
        return self.count or len(self.low)

    def column(self, rows: int) -> NDArray[Any]:
        """Zeros for `rows` stored actions: (rows,) int32, or (rows, dimensions) float32."""
        return np.zeros(rows, np.int32) if self.discrete else np.zeros((rows, self.width), np.float32)

    def decode(self, encoded: NDArray[np.float32]) -> NDArray[Any]:
        """The actions of (..., width) encoded ones: the inverse of `encode`. Values outside the box are clipped."""
        if self.discrete:
            return encoded.argmax(-1)
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        actions: NDArray[np.float32] = low + (np.clip(encoded, -1, 1) + 1) / 2 * (high - low)
        return actions

    def encode(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """(..., width) float32: one-hot, or the box scaled to [-1, 1]."""
        if self.discrete:
            return np.eye(self.count, dtype=np.float32)[actions]
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        scaled: NDArray[np.float32] = (2 * (actions - low) / (high - low) - 1).astype(np.float32)
        return scaled
