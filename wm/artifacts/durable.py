"""Durable writes: write to a staging path, fsync, rename, fsync the folder.

A rename inside one filesystem is the commit; what was not renamed does not exist.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def fsync_folder(folder: Path) -> None:
    """Make the entries of `folder` durable. Windows cannot sync a folder; there the rename must suffice."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Sync every file and folder below `folder`, leaves first."""
    for root, _, names in os.walk(folder, topdown=False):
        for name in names:
            with open(Path(root) / name, "rb+") as file:
                os.fsync(file.fileno())
        fsync_folder(Path(root))


def staging_path(path: Path) -> Path:
    """A new hidden name in the folder of `path`, to be renamed to it. `sweep` removes those of killed processes."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, whole or not at all."""
    staged = staging_path(path)
    try:
        with _naming(path), open(staged, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def canonical_json(value: Any) -> bytes:
    """JSON with one spelling per value, for hashing and for files that people read."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by the canonical JSON of `value`."""
    write_bytes(path, canonical_json(value))


def append_line(path: Path, line: str) -> None:
    """Append one line and sync it. A kill can tear only the last line, which readers drop."""
    with _naming(path), open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the path to errors of a write, which lack it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files (by relative name) of a new folder. Sync every file and folder."""
    make_folder(folder)
    subfolders = sorted({(folder / name).parent for name in files} - {folder})
    for subfolder in subfolders:
        subfolder.mkdir(parents=True)
    for name, data in files.items():
        with _naming(folder / name), open(folder / name, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    for written in [*reversed(subfolders), folder]:
        fsync_folder(written)


def commit_folder(staged: Path, final: Path) -> None:
    """Sync everything in `staged`, then rename it to `final` (which must not exist)."""
    fsync_tree(staged)
    publish(staged, final)


def publish(staged: Path, final: Path) -> None:
    """Rename a folder whose contents are synced to `final` (which must not exist), durably: the commit."""
    os.rename(staged, final)
    fsync_folder(final.parent)
    if staged.parent != final.parent:
        fsync_folder(staged.parent)


def make_folder(folder: Path) -> Path:
    """Create `folder` with its parents, durably."""
    missing = []
    parent = folder
    while not parent.exists():
        missing.append(parent)
        parent = parent.parent
    folder.mkdir(parents=True, exist_ok=True)
    for created in missing:
        fsync_folder(created.parent)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove `folder`: renamed first, so that a kill never leaves half of it under its name."""
    if not folder.exists():
        return
    doomed = staging_path(folder)
    os.rename(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(folder: Path, name: str = "*") -> None:
    """Remove from `folder` what killed processes left under the staging paths of `name`."""
    for leftover in folder.glob(f".{name}.????????.tmp"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def folder_size(folder: Path) -> int:
    """Sum of the file sizes below `folder`, in bytes; 0 if it does not exist."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
