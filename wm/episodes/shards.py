"""The arrays of a part: Zarr v3 arrays in one shard file each, written by zarr-python and read by our own code.

The layout is fixed: chunks of whole rows, each bytes -> zstd -> crc32c, one after the other, and an index with a
crc32c of its own at the end. No filter, no Blosc, no delta: plain zstd is smaller and faster on these frames. Any
Zarr v3 library reads it. Ours reads nothing else: the metadata must equal the schema's, so a store with other
codecs, shapes or versions is refused before anything in it is decoded. zarr-python reads the shard index again
on every call; going straight to the chunk is twenty times faster (benchmarks/chunk_pong.py).
"""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c
import numpy as np
import psutil
import zstandard
from numpy.typing import NDArray

from wm.artifacts import durable, json_reader, manifest
from wm.errors import BadData, MemoryProblem
from wm.units import format_size

METADATA = "zarr.json"
LEVEL = 3  # zstd's default; for columns that are small next to the frames
_ENTRY = 16  # bytes of index per chunk: offset and size
_MAX_METADATA = 4096  # bytes of an array's zarr.json: zarr-python writes 1,200
UNASKED = 1 << 26  # bytes that are decoded without asking how many are free, which takes 20 us
_Read = TypeVar("_Read")


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
        """Number of chunks."""
        return -(-self.shape[0] // self.chunk_rows)

    @cached_property  # asked twice for every chunk, where numpy's product of a shape took as long as reading the file
    def chunk_bytes(self) -> int:
        """Size of a decoded chunk."""
        return self.chunk_rows * int(np.prod(self.shape[1:])) * np.dtype(self.dtype).itemsize

    @cached_property
    def largest_chunk(self) -> int:
        """What an encoded chunk has at most: zstd adds less than a hundredth to what it cannot compress. A forged index
        must not fill the memory."""
        # A kilobyte for frame header and checksum of the smallest chunks.
        return self.chunk_bytes + self.chunk_bytes // 100 + 1024

    @property
    def shard(self) -> str:
        """Name of the one shard file."""
        return "c" + ".0" * len(self.shape)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The content of the array's zarr.json."""
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
        return {
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


def group_files(
    attributes: dict[str, Any], arrays: Mapping[str, tuple[ArraySpec, Iterable[NDArray[Any]]]]
) -> dict[str, bytes]:
    """The files of a Zarr group, by relative name. `arrays` has the spec and the rows of each, in pieces of whole
    chunks; the last piece may end anywhere.

    zarr-python writes them into memory. So the size of a part is known before the disk is touched, and every system
    call of a commit is ours: zarr-python syncs nothing, and a test makes each of our calls fail
    (tests/faults/test_system_calls.py).
    """
    # Imported by a process that writes: the import takes 0.3 s and 46 MB, which every worker would pay.
    import zarr
    from zarr.core.group import GroupMetadata
    from zarr.core.metadata import ArrayV3Metadata
    from zarr.storage import MemoryStore

    from wm.episodes.chunk_pipeline import WholeChunkShards

    files: dict[str, Any] = {}
    # Sorted keys: a recipe gives the same bytes before it is written and after it is read from a manifest.
    sorted_attributes = json_reader.parse(durable.canonical_json(attributes), METADATA, json_reader.TABLE)
    nodes: dict[str, Any] = {"": GroupMetadata(attributes=sorted_attributes)}
    # A person's files and variables of zarr-python, such as ZARR_JSON_INDENT, would change the bytes of a dataset.
    defaults: Any = {name: deepcopy(value) for each in zarr.config.defaults for name, value in each.items()}
    with zarr.config.set(defaults):
        for name, (spec, _) in arrays.items():
            codecs: Any = [WholeChunkShards.from_dict(codec) for codec in spec.metadata["codecs"]]
            nodes[name] = ArrayV3Metadata.from_dict({**spec.metadata, "codecs": codecs})
        # All at once: half of the time that one array after the other takes.
        created: dict[str, Any] = dict(zarr.create_hierarchy(store=MemoryStore(files), nodes=nodes))
        for name, (spec, pieces) in arrays.items():
            array, rows = created[name], 0
            for piece in pieces:
                if rows % spec.chunk_rows:
                    raise ValueError(f"{name} has a piece that begins at row {rows}, inside a chunk")
                array[rows : rows + len(piece)] = piece
                rows += len(piece)
    return {name: data.to_bytes() for name, data in files.items()}


def require_memory(need: int, what: Path) -> None:
    """Raise MemoryProblem for more than free memory holds, before it is decoded: any number of zeros compresses to
    little."""
    if need > UNASKED and need > (free := psutil.virtual_memory().available):
        raise MemoryProblem(
            f"{what} takes {format_size(need)} of memory and {format_size(free)} are free; end other programs, or use "
            "another dataset."
        )


class Shard:
    """An array on disk. A read raises BadData unless the files match `spec`.

    The first read opens the files: a dataset of a thousand parts would take more than a second to open.
    """

    def __init__(self, folder: Path, spec: ArraySpec) -> None:
        self.folder, self.spec = folder, spec

    @cached_property
    def path(self) -> Path:
        """The shard file."""
        return manifest.locate(self.folder, self.spec.shard)

    @cached_property
    def _index(self) -> list[list[int]]:
        """Offset and size of every chunk, once the metadata and the index are checked."""
        spec = self.spec
        require_memory(spec.chunk_bytes, self.folder)
        metadata = _read(manifest.locate(self.folder, METADATA), 0, _MAX_METADATA + 1)
        if not _is_json_of(metadata, spec.metadata):
            raise BadData(f"{self.folder / METADATA} does not describe the expected array; {_ADVICE}")
        # Four bytes of crc32c behind the entries.
        size = _ENTRY * spec.chunks + 4
        raw = _read(self.path, -size, size)
        if len(raw) != size or not _checked(raw):
            raise BadData(f"{self.path} has a damaged index; {_ADVICE}")
        # Python's integers: a forged offset near 2**64 would wrap around in the sum below and seem to fit.
        index = np.frombuffer(raw[:-4], "<u8").reshape(-1, 2).astype(object)
        ends = np.cumsum(index[:, 1])
        fits = (index[:, 0] == ends - index[:, 1]).all() and index[:, 1].max() <= spec.largest_chunk
        # The index must also use up the file, or bytes that no checksum covers could be hidden in it.
        if not fits or ends[-1] + size != self.path.stat().st_size:
            raise BadData(f"{self.path} has an index that does not fit its chunks; {_ADVICE}")
        entries: list[list[int]] = index.tolist()
        return entries

    def chunk(self, number: int) -> NDArray[Any]:
        """Chunk `number` as (rows, ...), rows past the end of the array cut off, checked by its crc32c."""
        values = np.empty((self.spec.chunk_rows, *self.spec.shape[1:]), self.spec.dtype)
        self.decode_into(number, values)
        return values[: self.spec.shape[0] - number * self.spec.chunk_rows]

    def decode_into(self, number: int, values: NDArray[Any]) -> None:
        """The first rows of chunk `number`, as many as `values` (at most a chunk) has; a whole chunk without a copy."""
        self.decode_each([(number, values)])

    def decode_each(self, targets: Sequence[tuple[int, NDArray[Any]]]) -> None:
        """`decode_into` for several chunks; the file is opened once."""
        places = [self._index[number] for number, _ in targets]
        for (number, values), (_, size), raw in zip(targets, places, _read_each(self.path, places), strict=True):
            if len(values) == self.spec.chunk_rows:
                self._decode(number, raw, size, values)
            else:
                chunk = np.empty((self.spec.chunk_rows, *self.spec.shape[1:]), self.spec.dtype)
                self._decode(number, raw, size, chunk)
                values[:] = chunk[: len(values)]

    def _decode(self, number: int, raw: bytes, size: int, values: NDArray[Any]) -> None:
        """A whole chunk from the `size` bytes that the index gives it, of which `raw` was read."""
        if len(raw) != size or not _checked(raw):
            raise BadData(f"{self.path} is damaged at chunk {number}; {_ADVICE}")
        if _declared_size(raw) != self.spec.chunk_bytes:
            raise BadData(f"{self.path} declares a wrong size at chunk {number}; {_ADVICE}")
        try:
            # Straight into `values`, with one context for all chunks. numcodecs creates a context per call, 9 us of a
            # Pong chunk's 45: streaming through it ran at 0.93 of this speed on Pong and at 0.97 on CarRacing.
            decoded = _decompressor().stream_reader(raw[:-4]).readinto(values.data)
        except zstandard.ZstdError as error:
            raise BadData(f"{self.path} cannot be decoded at chunk {number} ({error}); {_ADVICE}") from None
        if decoded != self.spec.chunk_bytes:
            raise BadData(f"{self.path} ends early at chunk {number}; {_ADVICE}")

    def all(self) -> NDArray[Any]:
        """Every row."""
        _ = self._index  # that of a forged size does not fit, and nothing is allocated
        require_memory(self.spec.chunks * self.spec.chunk_bytes, self.folder)
        values = np.empty(self.spec.shape, self.spec.dtype)
        for number in range(self.spec.chunks):
            self.decode_into(number, values[number * self.spec.chunk_rows :][: self.spec.chunk_rows])
        return values


class ReplacedShard(Shard):
    """An array of a part that may be replaced by a longer one while it is read, which begins with the same rows: then
    `find` has the array there."""

    def __init__(self, source: Shard, find: Callable[[], Shard | None]) -> None:
        super().__init__(source.folder, source.spec)
        self._source, self._find = source, find

    def decode_each(self, targets: Sequence[tuple[int, NDArray[Any]]]) -> None:
        """As of a Shard."""
        self._read(lambda shard: shard.decode_each(targets))

    def all(self) -> NDArray[Any]:
        """As of a Shard."""
        return self._read(lambda shard: shard.all())[: self.spec.shape[0]]

    def _read(self, read: Callable[[Shard], _Read]) -> _Read:
        try:
            return read(self._source)
        except (BadData, FileNotFoundError):
            # Only where the whole part is gone is another looked for; a damaged file in a part that is there is told.
            if self._source.folder.parent.exists() or (replacement := self._find()) is None:
                raise
            self._source = replacement
            return read(replacement)


@lru_cache(maxsize=1)
def _decompressor() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor()


_ADVICE = "run `wm verify` on its dataset or artifact."


def _read(path: Path, offset: int, size: int) -> bytes:
    """`size` bytes from `offset` (from the end if negative)."""
    return next(_read_each(path, [(offset, size)]))


def _read_each(path: Path, places: Sequence[Sequence[int]]) -> Iterator[bytes]:
    """The bytes at each (offset, size). The file is opened for each call: a thousand parts need no thousand
    descriptors, and threads share no file position."""
    try:
        with durable.open_file(path, "rb") as file:
            for offset, size in places:
                if offset >= 0 and hasattr(os, "pread"):
                    yield os.pread(file.fileno(), size, offset)
                else:
                    file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
                    yield file.read(size)
    except PermissionError:
        raise
    except (OSError, ValueError) as error:
        raise BadData(f"{path} cannot be read ({error}); {_ADVICE}") from None


def _is_json_of(data: bytes, value: dict[str, Any]) -> bool:
    """Whether `data` is a short JSON text of `value`, with any spelling and order of keys."""
    try:
        return len(data) <= _MAX_METADATA and bool(json_reader.parse(data, METADATA, json_reader.TABLE) == value)
    except BadData:
        # No JSON at all is no JSON of this value; the caller says what to do.
        return False


def _checked(data: bytes) -> bool:
    """Whether `data` ends with the crc32c of its other bytes."""
    return len(data) > 4 and bool(google_crc32c.value(data[:-4]) == struct.unpack("<I", data[-4:])[0])


def _declared_size(frame: bytes) -> int:
    """The content size a zstd frame header declares (RFC 8878, 3.1.1.1); -1 if it declares none."""
    # The shortest chunk has 14 bytes: magic number 4, header 2, a block of one byte 4, crc32c 4.
    if len(frame) < 14 or frame[:4] != b"\x28\xb5\x2f\xfd":
        return -1
    descriptor = frame[4]
    single_segment = (descriptor >> 5) & 1
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(frame[start : start + width], "little") if width else -1
    return size + 256 if width == 2 else size
