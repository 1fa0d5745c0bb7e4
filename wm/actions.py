"""Action spaces as plain values: how actions are stored, and how they are encoded for M."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from wm.arguments import as_array
from wm.errors import UsageProblem, shown

MOST_OPPOSED = 0.8  # of the second of two opposed dimensions: CarRacing's brake locks the wheels from 0.9 on
LARGEST_INTEGER = 1 << 23  # of an integer box: up to here 32-bit floats hold halves, so rounding reaches every integer
MOST_ACTIONS = 8192  # or dimensions: the networks have an input for each, and a forged one must not allocate all memory
LARGEST_BOUND = 1e38  # of a box: the width between two of them is a float of 32 bits


@dataclass(frozen=True)
class ActionSpace:
    """Discrete (`count` actions) or a box (`low`, `high` per dimension; `count` is 0)."""

    count: int = 0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @classmethod
    def of(cls, space: gym.Space[Any]) -> "ActionSpace":
        """Describe a gymnasium space. Raises UsageProblem for other kinds than Discrete and bounded flat Box, which
        `wm/envs/checked_env.py` makes of a Discrete that starts elsewhere and of other bounded boxes; and for more than
        MOST_ACTIONS actions or dimensions."""
        if problem := _problem(space):
            raise UsageProblem(
                f"the action space is {problem}, which is not supported; expected Discrete or a bounded Box, of at "
                f"most {MOST_ACTIONS} actions or dimensions, so wrap the environment with one of these."
            )
        if isinstance(space, gym.spaces.Discrete):
            return cls(count=int(space.n))
        return cls(low=tuple(map(float, space.low)), high=tuple(map(float, space.high)))  # type: ignore[attr-defined]

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ActionSpace":
        """The inverse of `as_json`."""
        return cls(count=int(value["count"]), low=tuple(value["low"]), high=tuple(value["high"]))

    def as_json(self) -> dict[str, Any]:
        """Plain values for a recipe."""
        return {"count": self.count, "low": list(self.low), "high": list(self.high)}

    def __str__(self) -> str:
        """In a sentence: `3 discrete actions`, or `actions of 3 dimensions from (-1, 0, 0) to 1`."""
        if self.discrete:
            return f"{self.count} discrete actions"
        plural = "" if self.width == 1 else "s"
        return f"actions of {self.width} dimension{plural} from {_bounds(self.low)} to {_bounds(self.high)}"

    def to_gymnasium(self) -> gym.Space[Any]:
        """The space in gymnasium's terms: the inverse of `of`."""
        if self.discrete:
            return gym.spaces.Discrete(self.count)
        return gym.spaces.Box(np.array(self.low, np.float32), np.array(self.high, np.float32))

    @property
    def discrete(self) -> bool:
        """Whether an action is one of `count` numbers."""
        return self.count > 0

    @property
    def width(self) -> int:
        """Length of the encoded action vector."""
        return self.count or len(self.low)

    def require(self, actions: NDArray[Any]) -> None:
        """Raise UsageProblem unless these are actions of the space: (N,) integers from 0 to `count` - 1, or (N,
        dimensions) finite numbers, which may lie outside of the box."""
        if self.discrete:
            fits = actions.ndim == 1 and np.issubdtype(actions.dtype, np.integer)
            wrong = actions[(actions < 0) | (actions >= self.count)] if fits else actions
            expected = f"integers from 0 to {self.count - 1}, shape (steps,)"
        else:
            fits = actions.ndim == 2 and actions.shape[1] == self.width and actions.dtype.kind in "fiu"
            wrong = actions[~np.isfinite(actions)] if fits else actions
            expected = f"finite numbers, shape (steps, {self.width})"
        if not fits:
            raise UsageProblem(f"actions are {actions.dtype} of shape {actions.shape}; expected {expected}.")
        if len(wrong):
            raise UsageProblem(f"an action is {wrong[0]}; expected {expected}.")

    def validated(self, action: Any) -> NDArray[Any]:
        """An action of the space as an array: an integer, or (dimensions,) finite numbers, which may lie outside of the
        box. Raises UsageProblem for what is none."""
        value = as_array("the action", action)
        if self.discrete:
            fits = value.ndim == 0 and value.dtype.kind in "iu" and bool(0 <= value < self.count)
            expected = f"an integer from 0 to {self.count - 1}"
        else:
            fits = value.shape == (self.width,) and value.dtype.kind in "fiu" and bool(np.isfinite(value).all())
            expected = f"finite numbers, shape ({self.width},)"
        if not fits:
            raise UsageProblem(f"the action is {shown(action)}; expected {expected}.")
        return value

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
        width = np.where(high > low, high - low, 1)  # where the bounds are equal, the action is always -1
        scaled: NDArray[np.float32] = (2 * (actions - low) / width - 1).astype(np.float32)
        return scaled


def _problem(space: gym.Space[Any]) -> str:
    """What the space is, if it is neither a Discrete from 0 nor a bounded flat Box of floats, or is too large for
    manifests (wm/artifacts/schemas.py); empty if it can be described."""
    if isinstance(space, gym.spaces.Discrete) and space.start == 0:
        return "" if space.n <= MOST_ACTIONS else f"a Discrete of {space.n} actions"
    if not isinstance(space, gym.spaces.Box):
        return type(space).__name__
    if 0 in space.shape:
        return "an empty Box"
    if not np.issubdtype(space.dtype, np.floating):
        return f"a Box of {space.dtype} with a bound beyond {LARGEST_INTEGER}"
    if not fits_floats(space):
        return f"a Box of {space.dtype} with bounds that floats of 32 bits do not tell apart"
    with np.errstate(over="ignore"):
        widths = space.high.astype(np.float32) - space.low.astype(np.float32)
    if len(space.shape) != 1 or not np.isfinite(widths).all():
        return "an unbounded Box"
    if len(space.low) > MOST_ACTIONS:
        return f"a Box of {len(space.low)} dimensions"
    bounds = np.abs(np.concatenate([space.low, space.high]).astype(np.float64))
    return "" if bounds.max() <= LARGEST_BOUND else f"a Box with a bound beyond {LARGEST_BOUND:g}"


def fits_floats(space: gym.spaces.Box) -> bool:
    """Whether bounds that differ still differ in 32 bits, as actions are stored: else an agent could not act."""
    with np.errstate(over="ignore", under="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return not ((low == high) & (space.low != space.high) & np.isfinite(low)).any()


def _bounds(values: tuple[float, ...]) -> str:
    """A bound of all dimensions: one number where it is the same for all."""
    numbers = [f"{value:g}" for value in values]
    return numbers[0] if len(set(numbers)) == 1 else f"({', '.join(numbers)})"
