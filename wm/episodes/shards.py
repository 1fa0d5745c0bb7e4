"""Reading frames straight from a part's shard file: index parsed once, positional reads, crc32c, zstd.

zarr-python re-reads the shard index on every call; this is twenty times faster on random chunks
(benchmarks/chunk_pong.py).
"""

import json
import os
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from wm.errors import BadData

_CODECS = ["bytes", "zstd", "crc32c"]
_MAX_METADATA = 1 << 16


def array_metadata(folder: Path) -> dict[str, Any]:
    """The zarr.json of a frames array, if it is of the one shape and codec chain we write. Raises BadData otherwise."""
    path = folder / "zarr.json"
    try:
        if path.stat().st_size > _MAX_METADATA:
            raise ValueError("it is too large")
        found: dict[str, Any] = json.loads(path.read_bytes())
        shape, (sharding,) = found["shape"], found["codecs"]
        inner = sharding["configuration"]
        names = [codec["name"] for codec in inner["codecs"]]
        chunk = inner["chunk_shape"]
        good = (
            found["zarr_format"] == 3
            and found["data_type"] == "uint8"
            and sharding["name"] == "sharding_indexed"
            and inner.get("index_location", "end") == "end"
            and names == _CODECS
            and len(shape) == 4
            and all(32 <= side <= 128 for side in shape[1:3])
            and shape[3] in (1, 3)
            and 0 < shape[0] < 1 << 31
            and chunk[1:] == shape[1:]
            and 0 < chunk[0] <= 4096
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadData(f"{path} cannot be read as a frames array: {error}.") from None
    if not good:
        raise BadData(f"{path} is not a sharded Zarr v3 array of uint8 frames with codecs {', '.join(_CODECS)}.")
    return found


class FrameShard:
    """The frames of one part. `chunk(i)` decodes chunk i; every chunk is checked by its crc32c."""

    def __init__(self, part: Path) -> None:
        meta = array_metadata(part / "frames")
        self.rows = int(meta["shape"][0])
        self.frame_shape = tuple(meta["shape"][1:])
        self.chunk_rows = int(meta["codecs"][0]["configuration"]["chunk_shape"][0])
        self.path = part / "frames" / "c.0.0.0.0"
        self.chunks = -(-self.rows // self.chunk_rows)
        size = 16 * self.chunks + 4
        raw = self._read(-size, size)
        if not _checked(raw):
            raise BadData(f"{self.path} has a damaged index; run `wm verify` on the dataset.")
        self._index = np.frombuffer(raw[:-4], "<u8").reshape(-1, 2)

    def _read(self, offset: int, size: int) -> bytes:
        """Opened for each read: thousands of parts need no thousands of descriptors, and threads share nothing."""
        try:
            with open(self.path, "rb") as file:
                file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
                return file.read(size)
        except (OSError, ValueError) as error:
            raise BadData(f"{self.path} cannot be read: {error}.") from None

    def chunk(self, number: int) -> NDArray[np.uint8]:
        """Chunk `number` as (rows, H, W, C), rows past the end of the array cut off."""
        offset, size = (int(value) for value in self._index[number])
        raw = self._read(offset, size) if max(offset, size) < 1 << 40 else b""
        if len(raw) != size or not _checked(raw):
            raise BadData(f"{self.path} is damaged at chunk {number}; run `wm verify` on the dataset.")
        frames = np.empty((self.chunk_rows, *self.frame_shape), np.uint8)
        if _declared_size(raw) != frames.nbytes:
            raise BadData(f"{self.path} declares a wrong size at chunk {number}; run `wm verify` on the dataset.")
        Zstd().decode(raw[:-4], out=frames)
        return frames[: self.rows - number * self.chunk_rows]


def _checked(data: bytes) -> bool:
    """Whether `data` ends with the crc32c of what is before."""
    return len(data) > 4 and bool(google_crc32c.value(data[:-4]) == struct.unpack("<I", data[-4:])[0])


def _declared_size(frame: bytes) -> int:
    """The content size a zstd frame header declares (RFC 8878, 3.1.1.1); -1 if it declares none."""
    if len(frame) < 14 or frame[:4] != b"\x28\xb5\x2f\xfd":
        return -1
    descriptor = frame[4]
    single_segment = (descriptor >> 5) & 1
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(frame[start : start + width], "little") if width else -1
    return size + 256 if width == 2 else size
