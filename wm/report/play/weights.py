"""All numbers of a page as one base64 text.

Each number is a float32 of which the most significant bytes are kept. Bytes of equal significance lie together, because
the highest ones of all weights are alike, and are deflated: a quarter less than base64 of float32 in all.
"""

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT, SHORT = 4, 3  # bytes of a number; with three the error of a weight is 1e-5 of it, with two 1e-3
Reference = dict[str, int]


class Weights:
    """Collects arrays; a page's description refers to them by their place."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[np.float32]] = []
        self.count = 0

    def add(self, values: Any) -> Reference:
        """Append an array or a tensor, flattened, and return its {at, size}."""
        array = np.asarray(values, np.float32).ravel()
        reference = {"at": self.count, "size": array.size}
        self._arrays.append(array)
        self.count += array.size
        return reference

    def text(self, kept: int) -> str:
        """All numbers with `kept` bytes each, rounded to the nearest, as base64 of deflated bytes."""
        bits = np.concatenate(self._arrays).view(np.uint32).astype(np.uint64)
        dropped = np.uint64(32 - 8 * kept)
        rounded = (bits + (np.uint64(1) << dropped >> np.uint64(1))) >> dropped
        planes = [(rounded >> np.uint64(8 * place)).astype(np.uint8) for place in reversed(range(kept))]
        return base64.b64encode(zlib.compress(np.concatenate(planes).tobytes(), 9)).decode()
