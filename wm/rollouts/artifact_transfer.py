"""Tasks as bytes for another machine. An artifact's folder in them is a digest: whoever lacks it asks for its files."""

import hashlib
import io
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wm.artifacts import durable, manifest
from wm.errors import BadData

SENT = (".json", ".safetensors")  # what loading a model reads, of an artifact's files
Files = dict[str, bytes]


class Lacking(Exception):
    """Folders that a task names by digest, and that are not here."""

    def __init__(self, digests: list[str]) -> None:
        super().__init__(", ".join(digests))
        self.digests = digests


class TaskPickler:
    """Makes tasks bytes, and gives the files of the artifacts that these name."""

    def __init__(self) -> None:
        self._digests: dict[Path, str | None] = {}
        self._folders: dict[str, Path] = {}

    def dump(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
        """The task, for `find_folders`."""
        buffer, paths = io.BytesIO(), dict[str, str]()

        def persistent_id(value: Any) -> str | None:
            """The digest of an artifact's folder; None for everything else."""
            digest = self._digest(value) if isinstance(value, Path) else None
            if digest is not None:
                paths[digest] = str(value.absolute())
            return digest

        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = persistent_id  # type: ignore[method-assign]
        pickler.dump((function, arguments))
        return pickle.dumps((buffer.getvalue(), paths))

    def _digest(self, folder: Path) -> str | None:
        if folder not in self._digests:
            self._digests[folder] = digest = _digest(folder)
            if digest is not None:
                self._folders[digest] = folder
        return self._digests[folder]

    def files(self, digest: str) -> Files:
        """The files that make the model of the artifact with this digest."""
        folder = self._folders[digest]
        names = [name for name in manifest.read_json(folder / manifest.NAME)["files"] if name.endswith(SENT)]
        return {name: durable.read_bytes(folder / name) for name in (manifest.NAME, *names)}


def _digest(folder: Path) -> str | None:
    """Of an artifact's manifest, which has the digests of its files; None where there is no artifact."""
    try:
        return hashlib.sha256(durable.read_bytes(folder / manifest.NAME)).hexdigest()
    except (OSError, BadData):
        # No artifact: the path stays in the task, and whoever opens it says what is missing.
        return None


# Threads of one host may be sent the same artifact at once.
_storing = threading.Lock()


def store(cache: Path, digest: str, files: Files) -> None:
    """Keep the files of an artifact in the folder `cache`."""
    if hashlib.sha256(files[manifest.NAME]).hexdigest() != digest:
        raise BadData(f"the files of artifact {digest[:16]} are others than announced; restart the workers.")
    folder = cache / digest
    with _storing:
        if not folder.exists():
            durable.make_folder(cache)
            staged = durable.staging_path(folder)
            durable.write_folder(staged, files)
            durable.publish(staged, folder)


def find_folders(task: bytes, cache: Path) -> tuple[bytes, dict[str, Path]]:
    """The bytes that `run_task` takes, and where the artifacts in them are here, by digest: in `cache`, or at the same
    path where folders are shared. Raises Lacking."""
    call, paths = pickle.loads(task)
    folders = {
        digest: cache / digest if (cache / digest).exists() else Path(path)
        for digest, path in paths.items()
        if (cache / digest).exists() or _digest(Path(path)) == digest
    }
    if lacking := sorted(paths.keys() - folders.keys()):
        raise Lacking(lacking)
    return call, folders


def run_task(call: bytes, folders: dict[str, Path]) -> bytes:
    """Run a task; returns its pickled result. Neither is unpickled by who passes them on, which needs no torch then."""
    unpickler = pickle.Unpickler(io.BytesIO(call))
    unpickler.persistent_load = folders.__getitem__  # type: ignore[method-assign]
    function, arguments = unpickler.load()
    return pickle.dumps(function(*arguments))
