"""All numbers of a page as one base64 text.

They are float32, as four planes of bytes, because the highest bytes of all weights are alike, deflated. Where a page
would be too large, the last bits of a mantissa are rounded away, and cost nothing then.
"""

import base64
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Reference = dict[str, int]
"""Where an array is among all numbers: {at, size}."""
Add = Callable[[Any], Reference]
"""Appends an array or a tensor, flattened."""
MANTISSA = 23  # bits of a float32's


class Precision(NamedTuple):
    """Bits of the mantissas of M's and C's numbers, and of those of V's decoder: an error in a picture stays there, one
    in M comes back with every step."""

    dream: int = MANTISSA
    decoder: int = MANTISSA


# In 100 steps of a dream with the paper's V and M, pixels differ from torch's by 6e-7, 2e-5, 7e-5 and 7e-5, latents by
# 4e-6, 4e-6, 5e-6 and 2e-5; the page has 3.8, 3.2, 2.9 and 2.8 MB.
PRECISIONS = (Precision(), Precision(decoder=15), Precision(20, 13), Precision(18, 13))


class Weights:
    """Collects arrays; a page's description refers to them by their place."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[np.uint32]] = []
        self.count = 0

    def add(self, values: Any, bits: int) -> Reference:
        """Append an array or a tensor, flattened, its numbers rounded to so many bits of the mantissa. Returns its {at,
        size}."""
        array = np.asarray(values, np.float32).ravel()
        reference = {"at": self.count, "size": array.size}
        self._arrays.append(_rounded(array, bits))
        self.count += array.size
        return reference

    def text(self) -> str:
        """The numbers as base64 of deflated bytes, the highest of all numbers first."""
        planes = np.concatenate(self._arrays).astype(">u4").view(np.uint8).reshape(-1, 4).T
        # 9 is the most that zlib compresses; a page is made once and loaded often.
        return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


def _rounded(array: NDArray[np.float32], bits: int) -> NDArray[np.uint32]:
    """The bits of these numbers, to the nearest with a mantissa of so many."""
    dropped = MANTISSA - bits
    half = (1 << dropped) >> 1
    return (array.view(np.uint32) + np.uint32(half)) >> np.uint32(dropped) << np.uint32(dropped)
