"""Resizing images to squares by exact area averaging.

Small matrix products take a third of the time of Pillow's BOX filter (`python -m benchmarks resize_pong`).
"""

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[np.uint8]


def area_weights(length: int, size: int) -> NDArray[np.float32]:
    """(size, length): row i averages the source pixels, whole or in part, that output pixel i covers."""
    edges = np.linspace(0, length, size + 1)
    left, right = edges[:-1, None], edges[1:, None]
    source = np.arange(length)[None]
    covered = np.clip(np.minimum(right, source + 1) - np.maximum(left, source), 0, None)
    return (covered * size / length).astype(np.float32)


def _covered(start: int, length: int, source: int, size: int) -> tuple[slice, slice]:
    """The output pixels that source pixels start..start + length touch, and all source pixels these cover."""
    first, last = start * size // source, -(-(start + length) * size // source)
    return slice(first, last), slice(first * source // size, -(-last * source // size))


class AreaResize:
    """Shrink (height, width, C) uint8 frames to (size, size, C).

    The weights form a narrow band, so rows are averaged band by band and columns block by block with small matrix
    products, which is about three times as fast as Pillow (benchmarks/resize_pong.py). The result is the exact
    area average, rounded.
    """

    def __init__(self, height: int, width: int, channels: int, size: int, out_channels: int = 0) -> None:
        """`out_channels` is the number of channels in the result (0: all)."""
        self.shape = (height, width, channels)
        self.size, self.out_channels = size, out_channels or channels
        self._tall, self._wide = area_weights(height, size), area_weights(width, size)
        # More bands multiply fewer of the weights' zeros; all usual sizes have a divisor up to 16.
        bands = max(divisor for divisor in range(1, 17) if size % divisor == 0)
        tall = self._tall.reshape(bands, size // bands, height)
        first = [int(np.flatnonzero(band.any(axis=0))[0]) for band in tall]
        last = [int(np.flatnonzero(band.any(axis=0))[-1]) for band in tall]
        span = max(end - start for start, end in zip(first, last, strict=True)) + 1
        starts = np.minimum(first, height - span)
        self.sources = starts[:, None] + np.arange(span)  # (bands, span): the source rows that each band averages
        self._rows = np.stack(
            [band[:, start : start + span] for band, start in zip(tall, starts, strict=True)]
        )  # (bands, size / bands, span)
        self._buffer = np.empty((bands, span, width * channels), np.float32)
        self._edges = np.stack([starts, starts + span], axis=1).ravel()[:-1]

        self._blocks = int(np.gcd(width, size))
        block = self._wide[: size // self._blocks, : width // self._blocks]
        self._columns = np.ascontiguousarray(np.kron(block.T, np.eye(channels, self.out_channels, dtype=np.float32)))

    def __call__(self, frame: Frame) -> Frame:
        height, width, channels = self.shape
        flat = frame.reshape(height, width * channels)
        for number, rows in enumerate(self.sources):
            self._buffer[number] = flat[rows[0] : rows[0] + len(rows)]
        return self._resize(self._rows, self._buffer).reshape(self.size, self.size, self.out_channels)

    def _resize(self, weights: NDArray[np.float32], source: NDArray[np.float32]) -> Frame:
        rows = np.matmul(weights, source)  # (bands, size / bands, width * channels)
        small = rows.reshape(rows.shape[0] * rows.shape[1] * self._blocks, -1) @ self._columns
        # Rounds to nearest, for the cast cuts off.
        small += 0.5
        return small.astype(np.uint8)

    def bands(self, changed: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The bands that average a source row with a change; `changed` is (height, any number)."""
        # Between consecutive edges; every other interval is a band, and the last band ends with the image.
        touched: NDArray[np.bool_] = np.logical_or.reduceat(changed.ravel(), self._edges * changed.shape[1])[::2]
        return touched.nonzero()[0]

    def redo(self, small: Frame, bands: NDArray[np.int64], source: NDArray[np.uint8]) -> None:
        """Recompute bands of `small` from their source rows, (len(bands), span, width, C)."""
        buffer = self._buffer[: len(bands)]
        buffer[:] = source.reshape(buffer.shape)
        by_band = small.reshape(len(self.sources), -1)
        by_band[bands] = self._resize(self._rows[bands], buffer).reshape(len(bands), -1)

    def patch(self, small: Frame, frame: Frame, changed: tuple[int, int, int, int]) -> None:
        """Recompute the part of `small` that the rectangle (left, top, width, height) of `frame` covers."""
        left, top, wide, tall = changed
        rows, ys = _covered(top, tall, self.shape[0], self.size)
        columns, xs = _covered(left, wide, self.shape[1], self.size)
        source = frame[ys, xs].astype(np.float32)
        height, width, channels = source.shape
        thin = (self._tall[rows, ys] @ source.reshape(height, -1)).reshape(-1, width, channels)
        small[rows, columns] = np.matmul(self._wide[columns, xs], thin) + 0.5
