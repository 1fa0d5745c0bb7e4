"""A dataset in an object store, and the folder that stands for it on this machine.

The store has the files of an ordinary dataset under its prefix. A part exists when its manifest does: its other files
are put first, and the manifest last, only if nobody has put one. The folder has the root and the table of every part,
so that everything but an array is read there as in any dataset. Arrays come when they are first read, are compared
with their digests, and go, the oldest first, when the disk budget is used up.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from wm.artifacts import durable, json_reader, locks, manifest
from wm.artifacts.disk import DiskBudget
from wm.artifacts.object_store import Entry, ObjectStore, Taken, in_parallel, parse_address
from wm.episodes.schema import part_range
from wm.episodes.shards import METADATA, ArraySpec, Shard
from wm.errors import BadData, DiskProblem, Locked, MissingInput, UsageProblem
from wm.units import format_size

FOLDER = ".s3"  # in the folder of the datasets
LINES = "provenance"  # a folder with an object for each line: objects cannot grow
PROVENANCE = "provenance.jsonl"
STAMPS = ".stamps.json"  # of what the folder was made from, so that the next command asks only for what is new
TRIES = 3  # of reading a dataset that a writer changes meanwhile, and of an array that is evicted meanwhile
_ROOT = (METADATA, manifest.NAME)
_STAMPS = json_reader.table_of(json_reader.TEXT)
_WAY_OUT = "run `wm verify` on its dataset"
_Read = TypeVar("_Read")
_mounted: dict[Path, "Mirror"] = {}


def mount(address: str, datasets: Path) -> "Mirror":
    """The mirror of the dataset at `address`, whose folder, below `datasets`, stands for it in this process from now
    on. Nothing is asked of the store before `refresh`. Raises UsageProblem, and MissingPackage without obstore."""
    bucket, prefix = parse_address(address)
    if not prefix:
        raise UsageProblem(f"{address} is a whole bucket; expected s3://BUCKET/PREFIX of one dataset.")
    folder = datasets / FOLDER / bucket / prefix.replace("/", "+")
    _mounted[folder] = Mirror(ObjectStore.open(address), folder)
    return _mounted[folder]


def of(path: Path) -> "Mirror | None":
    """The mirror whose folder is `path`; None for an ordinary dataset."""
    return _mounted.get(path)


class Mirror:
    """The dataset in `store`, and its `folder`. `limit` are the bytes that its arrays may take here (None: what is free
    on the volume but for a reserve)."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.limit: int | None = None
        self._arrays: dict[Path, int] | None = None  # folders of arrays, the oldest first, with their bytes
        # Threads of a training read arrays at once; without the lock two would fetch the same one and count it twice.
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Let the folder hold the root, the tables and the provenance that are in the store now. Other processes of
        this machine wait meanwhile, as do writers here to put a manifest. Raises BadData for what disagrees with its
        digests."""
        for attempt in range(TRIES):
            try:
                with locks.waited_for(self.folder):
                    self._refresh(self.store.entries())
                break
            except MissingInput:  # a writer has replaced a short part since the list was made
                if attempt == TRIES - 1:
                    raise

    def _refresh(self, entries: dict[str, Entry]) -> None:
        self._drop_lost(entries)
        if manifest.NAME not in entries:
            return
        known, stamps = self._known_stamps(), {"": entries[manifest.NAME].stamp}
        if known.get("") != stamps[""] or not self._has(""):
            self._bring("", entries)
        for name in sorted({name.partition("/")[0] for name in entries}):
            if part_range(name) is not None and f"{name}/{manifest.NAME}" in entries:
                stamps[name] = entries[f"{name}/{manifest.NAME}"].stamp
        stale = [name for name, stamp in stamps.items() if known.get(name) != stamp or not self._has(name)]
        in_parallel(lambda name: self._bring(name, entries), filter(None, stale))
        lines = [name for name in entries if name.startswith(f"{LINES}/")]
        stamps[LINES] = " ".join(entries[name].stamp for name in lines)
        if lines and known.get(LINES) != stamps[LINES]:
            texts = in_parallel(lambda name: self._read_small(name, entries), lines)
            durable.write_bytes(self.folder / PROVENANCE, b"".join(text.strip() + b"\n" for text in texts))
        if stamps != known:
            durable.write_json(self.folder / STAMPS, stamps)

    def _drop_lost(self, entries: dict[str, Entry]) -> None:
        """Remove parts, or all of the folder, that are in the store no more. It is asked once more: a writer of
        another machine may have put them after the list was made."""
        if manifest.NAME not in entries and self._has("") and not self.store.exists(manifest.NAME):
            durable.remove(self.folder)
        for path in self._parts_here():
            key = f"{path.name}/{manifest.NAME}"
            if key not in entries and not self.store.exists(key):
                durable.remove(path)

    def _parts_here(self) -> list[Path]:
        return [path for path in self.folder.glob("part-*-*") if part_range(path.name) is not None]

    def _known_stamps(self) -> dict[str, str]:
        try:
            stamps: dict[str, str] = json_reader.read(self.folder / STAMPS, _STAMPS)
        except (OSError, BadData):
            # Without stamps everything is compared with the store again, which costs requests and no correctness.
            return {}
        return stamps

    def _has(self, name: str) -> bool:
        return (self.folder / name / manifest.NAME).is_file()

    def _read_small(self, name: str, entries: dict[str, Entry], sha256: str = "") -> bytes:
        entry = entries.get(name)
        if entry is None or entry.size > json_reader.MAX_BYTES:
            why = "is missing" if entry is None else f"has {entry.size} bytes"
            raise BadData(f"{self.store.address}/{name} {why}; expected at most {json_reader.MAX_BYTES} bytes.")
        return self.store.read(name, entry.size, sha256)

    def _bring(self, name: str, entries: dict[str, Entry]) -> None:
        """Bring the metadata and the manifest of a part, or of the root (an empty name)."""
        below = f"{name}/" if name else ""
        data = self._read_small(below + manifest.NAME, entries)
        if self._has(name) and durable.read_bytes(self.folder / name / manifest.NAME) == data:
            return
        source = f"{self.store.address}/{below}{manifest.NAME}"
        listed = manifest.parse_sealed(data, source, manifest.SCHEMA, _WAY_OUT)["files"].get(METADATA)
        if listed is None:
            raise BadData(f"{source} lists no {METADATA}; {_WAY_OUT}.")
        metadata = self._read_small(below + METADATA, entries, listed["sha256"])
        durable.remove(self.folder / name)
        _place(self.folder / name, {METADATA: metadata, manifest.NAME: data})

    def shard(self, folder: Path, spec: ArraySpec) -> Shard:
        """An array of a part; its files come when it is read."""
        return _MirroredShard(self, folder, spec)

    def part_bytes(self, folder: Path) -> int:
        """The size of a part in the store."""
        files = manifest.read_sealed(folder / manifest.NAME, manifest.SCHEMA)["files"]
        return sum(entry["size"] for entry in files.values()) + (folder / manifest.NAME).stat().st_size

    def fetch(self, folder: Path, spec: ArraySpec) -> None:
        """Bring the files of the array `folder` of a part, checked, unless they are here."""
        with self._lock:
            if folder.is_dir():
                return
            part = folder.parent
            files = manifest.read_sealed(part / manifest.NAME, manifest.SCHEMA, _WAY_OUT)["files"]
            listed = {name: entry for name, entry in files.items() if name.startswith(f"{folder.name}/")}
            size = sum(entry["size"] for entry in listed.values())
            if size > _most_bytes(spec):
                raise BadData(f"{self.store.address}/{part.name} lists {size} bytes of {folder.name}; {_WAY_OUT}.")
            self.make_room(size)
            data = {}
            for name, entry in listed.items():
                manifest.locate(part, name)
                key = f"{part.name}/{name}"
                try:
                    data[name.partition("/")[2]] = self.store.read(key, entry["size"], entry["sha256"])
                except MissingInput:
                    raise BadData(
                        f"{self.store.address}/{key} is gone: the dataset has changed, so run the command again."
                    ) from None
            _place(folder, data)
            self._known_arrays()[folder] = size

    def make_room(self, size: int) -> None:
        """Remove the oldest arrays until `size` more bytes may be written here. Raises DiskProblem if that is not
        enough."""
        arrays = self._known_arrays()
        while size > (free := DiskBudget(self.folder, self.limit).available(sum(arrays.values()))):
            if not arrays:
                raise DiskProblem(
                    f"the next part of {self.store.address} takes {format_size(size)} on this machine but only "
                    f"{format_size(max(free, 0))} may be used; free some space, or raise --disk-budget."
                )
            oldest = next(iter(arrays))
            durable.remove(oldest)
            del arrays[oldest]

    def _known_arrays(self) -> dict[Path, int]:
        if self._arrays is None:
            here = [array for part in self._parts_here() for array in part.iterdir() if array.is_dir()]
            here.sort(key=lambda array: array.stat().st_mtime_ns)
            self._arrays = {array: durable.folder_size(array) for array in here}
        return self._arrays

    def put_root(self, files: dict[str, bytes]) -> None:
        """Put a new dataset's root, here too. Raises UsageProblem where other objects are, Locked if somebody else was
        first."""
        entries = self.store.entries()
        strangers = [name for name in entries if name not in _ROOT and part_range(name.partition("/")[0]) is None]
        if strangers:
            raise UsageProblem(
                f"{self.store.address} holds {strangers[0][:80]!r} and is no dataset; name another prefix with --data."
            )
        self._put_files("", files)
        self._commit("", files)

    def put_part(self, name: str, files: dict[str, bytes]) -> None:
        """Put a part, the manifest last, and keep it here. Raises Locked if somebody else has put it, or other bytes in
        its place, and BadData if somebody has removed some of it."""
        self._put_files(f"{name}/", files)
        self._require_put(name, files[manifest.NAME])
        self._commit(name, files)
        for array in {file.partition("/")[0] for file in files if "/" in file}:
            size = sum(len(data) for file, data in files.items() if file.startswith(f"{array}/"))
            self._known_arrays()[self.folder / name / array] = size

    def put_files(self, name: str, files: dict[str, bytes]) -> None:
        """Put all of a part but its manifest. Raises Locked as `put_part`."""
        self._put_files(f"{name}/", files)

    def commit_part(self, name: str, head: dict[str, bytes]) -> None:
        """Put the manifest of a part whose other files are there; `head` has its metadata too. Raises BadData where one
        of them is missing, and Locked if somebody else has put it."""
        self._require_put(name, head[manifest.NAME])
        self._commit(name, head)

    def _require_put(self, name: str, data: bytes) -> None:
        """Raise BadData unless the store has all that a part's manifest, `data`, lists."""
        source, entries = f"{self.store.address}/{name}", self.store.entries(name)
        for file, entry in manifest.parse_sealed(data, source, manifest.SCHEMA, _WAY_OUT)["files"].items():
            if (stored := entries.get(f"{name}/{file}")) is None or stored.size != entry["size"]:
                raise BadData(f"{source}/{file} is not what was put there; run the same command again.")

    def _commit(self, name: str, files: dict[str, bytes]) -> None:
        """Put a manifest, and place the part, or the root, here before another process of this machine sees it."""
        with locks.waited_for(self.folder):
            self._put_manifest(f"{name}/" if name else "", files[manifest.NAME])
            _place(self.folder / name, files)

    def _put_files(self, below: str, files: dict[str, bytes]) -> None:
        in_parallel(lambda name: self._put_file(below, name, files[name]), [n for n in files if n != manifest.NAME])

    def _put_manifest(self, below: str, data: bytes) -> None:
        try:
            self.store.put_new(below + manifest.NAME, data)
        except Taken:
            raise self._locked(below) from None

    def _put_file(self, below: str, name: str, data: bytes) -> None:
        """Put a file that no manifest lists yet. The same bytes may be there, from a process that was killed."""
        try:
            self.store.put_new(below + name, data)
        except Taken:
            # The bytes are compared, not the stamp: an upload that was killed may have put this very object.
            if self.store.holds(below + name, data):
                return
            if self.store.exists(below + manifest.NAME):
                raise self._locked(below) from None
            raise Locked(
                f"{self.store.address}/{below}{name} has other bytes than this command writes, so another process is "
                f"writing there; wait for it or, if none is, run `wm clean {self.store.address} --unfinished`."
            ) from None

    def _locked(self, below: str) -> Locked:
        what = f"has put {below.rstrip('/')} first" if below else "has created it first"
        return Locked(
            f"{self.store.address} is being written by another process, which {what}; wait for it, and run the same "
            "command again."
        )

    def remove_part(self, name: str) -> None:
        """Remove a part from the store, the manifest first, so that no reader sees a piece of it."""
        self.store.remove([f"{name}/{manifest.NAME}"])
        self.store.remove(self.store.entries(name))

    def record(self, line: bytes) -> None:
        """Add a line to the provenance in the store."""
        number = len(self.store.entries(LINES))
        while True:
            try:
                return self.store.put_new(f"{LINES}/{number:06d}.json", line)
            except Taken:
                # Another writer took this number, so the next one is tried; numbers only keep the lines apart.
                number += 1


def _place(folder: Path, files: dict[str, bytes]) -> None:
    """Write a new folder, whole or not at all. One of another process that was faster is kept."""
    staged = durable.staging_path(folder)
    try:
        durable.write_folder(staged, files)
        durable.publish(staged, folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        durable.remove(staged)


class _MirroredShard(Shard):
    """An array whose files come when they are read, and again after they were evicted."""

    def __init__(self, mirror: Mirror, folder: Path, spec: ArraySpec) -> None:
        super().__init__(folder, spec)
        self._mirror = mirror

    def decode_each(self, targets: Sequence[tuple[int, NDArray[Any]]]) -> None:
        """As of a Shard."""
        self._read(lambda: Shard.decode_each(self, targets))

    def all(self) -> NDArray[Any]:
        """As of a Shard."""
        return self._read(lambda: Shard.all(self))

    def _read(self, read: Callable[[], _Read]) -> _Read:
        for _ in range(TRIES):
            self._mirror.fetch(self.folder, self.spec)
            try:
                return read()
            except BadData:
                if self.folder.is_dir():
                    raise
        raise DiskProblem(f"{self.folder} is evicted faster than it is read; free some space, or raise --disk-budget.")


def _most_bytes(spec: ArraySpec) -> int:
    """What the files of an array can take. A forged manifest must not fill the memory."""
    # Kilobytes for the metadata (at most 4 kB) and the index of a shard with few chunks.
    return spec.chunks * spec.largest_chunk + 8192
