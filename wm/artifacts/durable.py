"""Durable writes: write to a staging path, fsync, rename, fsync the folder.

A rename inside one filesystem is the commit; what was not renamed does not exist. `open_file` opens and `remove`
removes for the whole library; both refuse links.
"""

import glob
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from io import DEFAULT_BUFFER_SIZE, BufferedIOBase
from pathlib import Path
from typing import Any, Literal, cast

from wm.artifacts import links
from wm.artifacts.disk import explain, is_file_limit, require_possible
from wm.errors import BadData, DiskProblem

TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")  # the names of `staging_path`, around the final name
# Bytes of a log, which no manifest lists while it grows: a training of 10**7 steps writes 50 MB. A file that claims
# more, such as a sparse one, must not take all memory.
LARGEST_LOG = 1 << 28
# Files that are open and synced at once: more than a part has. A file system that has several to sync commits its
# journal once for all: on ext4 the ten files of a part took 26 ms instead of 92.
_SYNCED_AT_ONCE = 16


def open_file(path: Path | str, mode: Literal["rb", "rb+", "wb", "ab"]) -> BufferedIOBase:
    """Open a file of a dataset or a run. Raises BadData for a link, and for a pipe or a device, which could block;
    DiskProblem where no file can be made, as in /proc, or no more may be open."""
    return cast(BufferedIOBase, open(path, mode, DEFAULT_BUFFER_SIZE, opener=_open_regular))


def _require_regular(path: Path | str) -> None:
    try:
        kind = os.lstat(path).st_mode  # once: a dataset of 10,000 episodes has 313 manifests
    except OSError:  # which opening raises too, unless it makes the file
        return
    if stat.S_ISLNK(kind):
        links.refuse(Path(path))
    elif not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise BadData(f"{path} is a pipe or a device; expected a file, so remove it.")


def _open_regular(path: str, flags: int) -> int:
    _require_regular(path)
    # The flag closes the gap between the check and the call. Windows has no such flag.
    try:
        # Windows opens as text without O_BINARY, and would change line feeds.
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0), 0o666)
    except FileNotFoundError:
        # The same error for a missing file and for a folder in which none can be made; O_CREAT tells them apart.
        if flags & os.O_CREAT and os.path.isdir(os.path.dirname(path) or "."):
            raise _takes_no_files(Path(path)) from None
        raise
    except OSError as error:
        if is_file_limit(error):
            # No OSError: readers take these for damage, and damage is set aside or made again.
            raise DiskProblem(explain(error)) from None
        raise


def _takes_no_files(path: Path) -> DiskProblem:
    return DiskProblem(f"{path} cannot be made: {path.parent} takes no new files; give another place.")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file of a dataset or a run. Raises BadData for a link."""
    with open_file(path, "rb") as file:
        return file.read()


def read_at_most(path: Path | str, most: int) -> bytes | None:
    """The bytes of a file of a dataset or a run; None if it has more than `most`. Raises BadData for a link. A file
    object would take three system calls more, of eight."""
    descriptor = _open_regular(os.fspath(path), os.O_RDONLY)
    try:
        if (size := os.fstat(descriptor).st_size) > most:
            return None
        data = b""
        # A file that another process truncates meanwhile gives fewer bytes; the reader's checks then refuse them.
        while len(data) < size and (piece := os.read(descriptor, size - len(data))):
            data += piece
        return data
    finally:
        os.close(descriptor)


def read_log(path: Path) -> bytes:
    """The bytes of a file that grows, and whose size no manifest tells. Raises BadData for a link, and for more than
    LARGEST_LOG bytes."""
    with open_file(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_LOG:
            raise BadData(
                f"{path} has {size} bytes; expected at most {LARGEST_LOG}, so restore it, or remove it to go without."
            )
        return file.read()


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
    # Leaves first: a folder's entry must not be durable before what is in it.
    for root, _, names in os.walk(folder, topdown=False):
        for name in names:
            # Opened for writing, because Windows syncs no file that is open for reading.
            with open_file(Path(root) / name, "rb+") as file:
                os.fsync(file.fileno())
        fsync_folder(Path(root))


def staging_path(path: Path) -> Path:
    """A new hidden name in the folder of `path`, to be renamed to it. `sweep` removes those of killed processes."""
    # 32 bits of chance: they only keep processes apart that write the same path at once.
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, whole or not at all."""
    staged = staging_path(path)
    try:
        with _naming(path), open_file(staged, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException:
        # Also for a signal: KeyboardInterrupt is no Exception, and would leave the staged file.
        remove(staged)
        raise
    fsync_folder(path.parent)


# allow_nan=False: NaN is no JSON, and other readers would refuse the whole file.
def canonical_json(value: Any) -> bytes:
    """JSON with one spelling per value, for hashing and for files that people read."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by the canonical JSON of `value`."""
    write_bytes(path, canonical_json(value))


def append(path: Path, line: bytes) -> None:
    """Append one line, with its line feed, and sync it. A kill can tear only the last line, which readers drop, and so
    does this. A file with other names, as in a snapshot by `cp -al`, is replaced: what they name stays as it was."""
    if path.exists() and (path.stat().st_nlink > 1 or _is_torn(path)):
        whole, feed, _ = read_log(path).rpartition(b"\n")
        write_bytes(path, whole + feed + line)
        return
    with _naming(path), open_file(path, "ab") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _is_torn(path: Path) -> bool:
    """Whether the last line of a log has no line feed."""
    with open_file(path, "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - 1, 0))
        return file.read() not in (b"", b"\n")


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
    paths = [(folder / name, data) for name, data in files.items()]
    for start in range(0, len(paths), _SYNCED_AT_ONCE):
        _write_synced(paths[start : start + _SYNCED_AT_ONCE])
    for written in [*reversed(subfolders), folder]:
        fsync_folder(written)


def _write_synced(files: Sequence[tuple[Path, bytes]]) -> None:
    """Write new files one after the other, then sync all at once."""
    with ExitStack() as stack:
        opened = []
        for path, data in files:
            with _naming(path):
                # The innermost first, so that no folder is durable before its contents.
                file = stack.enter_context(open_file(path, "wb"))
                file.write(data)
                file.flush()
            opened.append((path, file))
        with ThreadPoolExecutor(len(files)) as threads:  # its end waits for all, so that none is closed before
            futures = [threads.submit(_sync, path, file) for path, file in opened]
        for future in futures:
            future.result()


def _sync(path: Path, file: BufferedIOBase) -> None:
    with _naming(path):
        os.fsync(file.fileno())


def link(source: Path, target: Path) -> None:
    """Give a file that never changes a second name; a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        # FAT, some network disks and volumes of containers have no links, or refuse them across volumes.
        write_bytes(target, read_bytes(source))


def commit_folder(staged: Path, final: Path) -> None:
    """Sync everything in `staged`, then rename it to `final` (which must not exist)."""
    fsync_tree(staged)
    publish(staged, final)


def publish(staged: Path, final: Path) -> None:
    """Rename a folder whose contents are synced to `final` (which must not exist), durably: the commit."""
    os.rename(staged, final)
    fsync_folder(final.parent)
    # The old parent loses an entry; without its sync both names could be there after a power failure.
    if staged.parent != final.parent:
        fsync_folder(staged.parent)


def make_folder(folder: Path) -> Path:
    """Create `folder` with its parents, durably. Raises UsageProblem for a path at which nothing can be, DiskProblem
    where nothing can be made, as in /proc."""
    require_possible(folder)
    missing = []
    parent = folder
    while not parent.exists():
        missing.append(parent)
        parent = parent.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        raise _takes_no_files(missing[-1]) from None
    # Only what was made here: the parents that existed are durable already.
    for created in missing:
        fsync_folder(created.parent)
    return folder


def remove(path: Path, link: bool = False) -> bool:
    """Remove a file or a folder, if it exists. Raises BadData for a link, unless a `link` itself is to be removed. What
    a link points to stays, also inside a folder. A folder is renamed first, so that a kill never leaves half of it
    under its name. Returns whether nothing is left: what the system does not let go of stays under a staging path."""
    if not link:
        links.refuse(path)
    if path.is_dir() and not path.is_symlink():
        doomed = path
        # What a kill left under a staging path has no name worth keeping, so it is removed where it is.
        if not TEMPORARY.fullmatch(path.name):
            doomed = staging_path(path)
            os.rename(path, doomed)
        try:
            # Errors are told by the return value: on Windows another process may hold a file open.
            shutil.rmtree(doomed, ignore_errors=True)
        except RecursionError:
            raise BadData(f"{doomed} has folders nested too deeply; remove it with `rm -r`.") from None
        return not doomed.exists()
    path.unlink(missing_ok=True)
    return True


def sweep(folder: Path, name: str = "") -> None:
    """Remove from `folder` what killed processes left under the staging paths of `name`, or without it of any."""
    for leftover in folder.glob(f".{glob.escape(name) or '*'}.????????.tmp"):
        remove(leftover)


def folder_size(folder: Path) -> int:
    """Sum of the file sizes below `folder`, in bytes, without those behind links; 0 if it does not exist."""
    if not folder.is_dir():
        return 0
    total, folders = 0, [os.fspath(folder)]
    while folders:
        with suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:  # another may remove it
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total
