"""One array of a part: a Zarr v3 array in a single shard file, written and read without a detour.

The form is fixed: chunks of whole rows, each bytes -> zstd -> crc32c, one after the other, and an index with a
crc32c of its own at the end. No filter, no Blosc, no delta: plain zstd is smaller and faster on these frames. Any
Zarr v3 library reads it. Ours reads nothing else: the metadata must be, byte for byte, what the schema calls for, so
a store with other codecs, shapes or versions is refused before anything in it is decoded. zarr-python re-reads the
shard index on every call; going straight to the chunk is twenty times faster (benchmarks/chunk_pong.py).
"""

import json
import os
import struct
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zstandard
from numpy.typing import NDArray

from wm.artifacts import manifest
from wm.errors import BadData

METADATA = "zarr.json"
LEVEL = 3
_ENTRY = 16  # bytes of index per chunk: offset and size


@dataclass(frozen=True)
class ArraySpec:
    """Shape and type of a stored array. `chunk_rows` rows share a chunk; the last one is filled up with zeros. `level`
    is zstd's."""

    shape: tuple[int, ...]
    dtype: str
    chunk_rows: int
    level: int = LEVEL

    @property
    def chunks(self) -> int:
        """How many chunks hold the rows."""
        return -(-self.shape[0] // self.chunk_rows)

    @property
    def chunk_bytes(self) -> int:
        """Size of a decoded chunk."""
        return self.chunk_rows * int(np.prod(self.shape[1:])) * np.dtype(self.dtype).itemsize

    @property
    def shard(self) -> str:
        """Name of the one shard file."""
        return "c" + ".0" * len(self.shape)

    @cached_property
    def metadata(self) -> bytes:
        """The array's zarr.json."""
        inner = [self.chunk_rows, *self.shape[1:]]
        endian = {"configuration": {"endian": "little"}} if np.dtype(self.dtype).itemsize > 1 else {}
        bytes_codec: dict[str, Any] = {"name": "bytes", **endian}
        sharding = {
            "chunk_shape": inner,
            "codecs": [
                bytes_codec,
                {"name": "zstd", "configuration": {"level": self.level, "checksum": False}},
                {"name": "crc32c"},
            ],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": "end",
        }
        described = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.dtype,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": [self.chunks * self.chunk_rows, *self.shape[1:]]},
            },
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": False if self.dtype == "bool" else 0,
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
            "attributes": {},
            "storage_transformers": [],
        }
        return json.dumps(described, indent=1).encode() + b"\n"


class ShardEncoder:
    """Compresses rows as they come. Every chunk is written, empty ones too: a missing chunk would read as zeros."""

    def __init__(self, row_shape: tuple[int, ...], dtype: str, chunk_rows: int, level: int = LEVEL) -> None:
        self.rows = 0
        self._form = ArraySpec((0, *row_shape), dtype, chunk_rows, level)
        self._compressor = zstandard.ZstdCompressor(level=level)
        self._chunk = np.zeros((chunk_rows, *row_shape), dtype)
        self._encoded: list[bytes] = []

    def add(self, rows: NDArray[Any]) -> None:
        """Append (n, ...) rows."""
        while len(rows):
            filled = self.rows % self._form.chunk_rows
            taken = rows[: self._form.chunk_rows - filled]
            self._chunk[filled : filled + len(taken)] = taken
            self.rows += len(taken)
            rows = rows[len(taken) :]
            if self.rows % self._form.chunk_rows == 0:
                self._encoded.append(self._encode())

    def files(self) -> dict[str, bytes]:
        """The array's two files with all rows so far. More rows may follow."""
        form = replace(self._form, shape=(self.rows, *self._form.shape[1:]))
        chunks = list(self._encoded)
        if filled := self.rows % form.chunk_rows:
            self._chunk[filled:] = 0
            chunks.append(self._encode())
        sizes = np.array([len(chunk) for chunk in chunks], "<u8")
        index = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1).astype("<u8").tobytes()
        return {METADATA: form.metadata, form.shard: b"".join([*chunks, _with_checksum(index)])}

    def _encode(self) -> bytes:
        return _with_checksum(self._compressor.compress(self._chunk.data))


def array_files(values: NDArray[Any], chunk_rows: int = 0) -> dict[str, bytes]:
    """The files of an array, in chunks of `chunk_rows` rows (0: one chunk)."""
    encoder = ShardEncoder(values.shape[1:], values.dtype.name, chunk_rows or max(len(values), 1))
    encoder.add(values)
    return encoder.files()


class Shard:
    """An array on disk, opened by the form it must have. Raises BadData where it has not."""

    def __init__(self, folder: Path, form: ArraySpec) -> None:
        self.form = form
        self.path = manifest.locate(folder, form.shard)
        metadata = _read(manifest.locate(folder, METADATA), 0, len(form.metadata) + 1)
        if metadata != form.metadata:
            raise BadData(f"{folder / METADATA} does not describe the array that belongs there; {_ADVICE}")
        size = _ENTRY * form.chunks + 4
        raw = _read(self.path, -size, size)
        if len(raw) != size or not _checked(raw):
            raise BadData(f"{self.path} has a damaged index; {_ADVICE}")
        index = np.frombuffer(raw[:-4], "<u8").reshape(-1, 2).astype(object)
        ends = np.cumsum(index[:, 1])
        if (index[:, 0] != ends - index[:, 1]).any() or ends[-1] + size != self.path.stat().st_size:
            raise BadData(f"{self.path} has an index that does not fit its chunks; {_ADVICE}")
        self._index = index.tolist()

    def chunk(self, number: int) -> NDArray[Any]:
        """Chunk `number` as (rows, ...), rows past the end of the array cut off, checked by its crc32c."""
        values = np.empty((self.form.chunk_rows, *self.form.shape[1:]), self.form.dtype)
        self.decode_into(number, values)
        return values[: self.form.shape[0] - number * self.form.chunk_rows]

    def decode_into(self, number: int, values: NDArray[Any]) -> None:
        """The first rows of chunk `number`, as many as `values` (at most a chunk) has; a whole chunk without a copy."""
        if len(values) < self.form.chunk_rows:
            chunk = np.empty((self.form.chunk_rows, *self.form.shape[1:]), self.form.dtype)
            self.decode_into(number, chunk)
            values[:] = chunk[: len(values)]
            return
        offset, size = self._index[number]
        raw = _read(self.path, offset, size)
        if len(raw) != size or not _checked(raw):
            raise BadData(f"{self.path} is damaged at chunk {number}; {_ADVICE}")
        if _declared_size(raw) != self.form.chunk_bytes:
            raise BadData(f"{self.path} declares a wrong size at chunk {number}; {_ADVICE}")
        try:
            # Straight into `values`, with a context that lives on: a fifth faster than a decoder made for each chunk.
            done = _decompressor().stream_reader(raw[:-4]).readinto(values.data)
        except zstandard.ZstdError as error:
            raise BadData(f"{self.path} cannot be decoded at chunk {number} ({error}); {_ADVICE}") from None
        if done != self.form.chunk_bytes:
            raise BadData(f"{self.path} ends early at chunk {number}; {_ADVICE}")

    def all(self) -> NDArray[Any]:
        """Every row."""
        values = np.empty(self.form.shape, self.form.dtype)
        for number in range(self.form.chunks):
            self.decode_into(number, values[number * self.form.chunk_rows :][: self.form.chunk_rows])
        return values


@lru_cache(maxsize=1)
def _decompressor() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor()


_ADVICE = "run `wm verify` on what it belongs to."


def _read(path: Path, offset: int, size: int) -> bytes:
    """Opened for each read: thousands of parts need no thousands of descriptors, and threads share nothing."""
    try:
        with open(path, "rb", buffering=0) as file:
            if offset >= 0 and hasattr(os, "pread"):
                return os.pread(file.fileno(), size, offset)
            file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
            return file.read(size)
    except (OSError, ValueError) as error:
        raise BadData(f"{path} cannot be read ({error}); {_ADVICE}") from None


def _with_checksum(data: bytes) -> bytes:
    return data + struct.pack("<I", google_crc32c.value(data))


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
