"""Area averages of palette images of which little changes from one to the next: only those with a change are taken."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wm.envs.resize import Frame, area_weights

_WORD = 4  # pixels that are compared at once, as one uint32


class PaletteResize:
    """Shrinks (height, width) palette images to (size, size, 3), to the very pixels of AreaResize.

    A palette is (256, 4) float32, from `palette_of`.
    """

    def __init__(self, height: int, width: int, size: int) -> None:
        """Raises ValueError unless `gives_same_pixels`."""
        if not gives_same_pixels(height, width, size):
            raise ValueError(f"averages of {height}x{width} at {size}x{size} may be rounded otherwise")
        self._touched, self._sources, self._weights = _tables(height, width, size)
        self._marked = np.zeros(size * size, bool)
        self._differs = np.empty(height * width // _WORD, bool)

    def changed(self, image: NDArray[np.uint32], previous: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Places where two flat images differ, in words of four pixels."""
        return np.not_equal(image, previous, out=self._differs).nonzero()[0]

    def redo(
        self, small: Frame, image: NDArray[np.uint8], words: NDArray[np.int64], palette: NDArray[np.float32]
    ) -> None:
        """Take the pixels of `small` again that these words of a flat image touch."""
        self._marked[self._touched.take(words, axis=0)] = True
        pixels = self._marked.nonzero()[0]
        self._marked[pixels] = False
        # The emulator leaves nothing of numpy in the caches, so few calls matter more than few bytes: `take` with an
        # axis is faster than an index, and a fourth channel faster than three.
        colors = palette.take(image.take(self._sources.take(pixels, axis=0)), axis=0)
        averages = np.matmul(self._weights.take(pixels, axis=0), colors)
        small.reshape(-1, 3)[pixels] = averages[:, 0, :3]


def palette_of(colors: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(256, 4) of (256, 4) colors, of which three channels count. Half a level is added once here, not to every
    average: a cast to uint8 cuts off."""
    return colors.astype(np.float32) + np.float32(0.5)


def gives_same_pixels(height: int, width: int, size: int) -> bool:
    """Whether PaletteResize gives the same pixels as AreaResize. It does for Atari's screen at 64x64.

    An exact average is a whole number over `total`. If that is odd, it is 0.5 / total or more from where it would round
    to another value. In float32, a weighted sum of n terms up to 256 is within (n + 2) / 2^16 of it.
    """
    total = (height // math.gcd(height, size)) * (width // math.gcd(width, size))
    terms = (height // size + 2) * (width // size + 2)
    return width % _WORD == 0 and total % 2 == 1 and (terms + 2) * total < 1 << 15


@lru_cache(maxsize=2)  # the environments of a process share them: 1.1 MB for Atari at 64x64
def _tables(height: int, width: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Output pixels that each word touches, (words, n); source pixels of each output pixel, (size * size, k), and their
    weights, (size * size, 1, k). Places repeat where there are fewer; their weights are zero."""
    tall, wide = area_weights(height, size), area_weights(width, size)
    by_word: NDArray[np.bool_] = np.logical_or.reduce(wide.reshape(size, -1, _WORD), axis=2)
    touched = _grid(_places(tall.T > 0), _places(by_word.T), size)
    rows, columns = _places(tall > 0), _places(wide > 0)
    sources = _grid(rows, columns, width)
    weights = _weights_at(tall, rows)[:, None, :, None] * _weights_at(wide, columns)[None, :, None, :]
    return touched, sources, np.ascontiguousarray(weights.reshape(size * size, 1, -1))


def _places(covered: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(n, k): the columns where each row of (n, m) is true, which follow each other; the last repeats."""
    first = covered.argmax(axis=1)
    last = covered.shape[1] - 1 - covered[:, ::-1].argmax(axis=1)
    return np.minimum(first[:, None] + np.arange((last - first).max() + 1), last[:, None])


def _weights_at(weights: NDArray[np.float32], places: NDArray[np.int64]) -> NDArray[np.float32]:
    chosen = np.take_along_axis(weights, places, axis=1)
    # A place that repeats would count twice in the average.
    chosen[:, 1:][places[:, 1:] == places[:, :-1]] = 0
    return chosen


def _grid(rows: NDArray[np.int64], columns: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """(rows * columns, places): the flat places of every pair of a row and a column."""
    grid = rows[:, None, :, None] * width + columns[None, :, None, :]
    return np.ascontiguousarray(grid.reshape(len(rows) * len(columns), -1))
