"""The disk budget: refuse before anything is written, and stop cleanly when the limit is near.

Free space and inodes are those of the target's volume; symbolic links are followed.
"""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from wm.errors import BadData, DiskProblem, UsageProblem
from wm.units import format_size

RESERVE = 1 << 30  # bytes that stay free on a large volume, for the system and other programs
FEW_INODES = 32  # below which a full disk is said to lack inodes
RESERVE_SHARE = 0.05  # of the volume, where that is less


@dataclass(frozen=True)
class DiskBudget:
    """The bytes that may be used at `target`. `limit` is the user's (None: no limit)."""

    # None where the user gave no --disk-budget; the reserve of the volume holds all the same.
    target: Path
    limit: int | None = None

    def available(self, used: int) -> int:
        """Bytes that may still be written when the target holds `used`: free less reserve, or what the limit leaves."""
        usage = shutil.disk_usage(volume_of(self.target))
        free = usage.free - min(RESERVE, int(RESERVE_SHARE * usage.total))
        return free if self.limit is None else min(free, self.limit - used)

    # 64 inodes are more than a run or a page takes; what writes datasets gives its own number.
    def require(self, need: int, used: int, what: str, files: int = 64) -> None:
        """Raise DiskProblem unless `need` more bytes in `files` more files are available."""
        if not shutil.disk_usage(volume := volume_of(self.target)).total:
            raise DiskProblem(f"{what} has no place at {self.target}: {volume} takes no files; give another place.")
        available = self.available(used)
        if need > available:
            raise DiskProblem(
                f"{what} needs about {format_size(need)} at {self.target} but only "
                f"{format_size(max(available, 0))} may be used; free some space, raise --disk-budget, or ask for less."
            )
        inodes = inodes_left(self.target)
        if inodes is not None and inodes < files:
            raise DiskProblem(
                f"{what} needs about {files} inodes at {self.target} but {inodes} are left; remove some small files."
            )


def volume_of(path: Path) -> Path:
    """The nearest folder above `path` that exists, through symbolic links."""
    folder = path.resolve()
    while not folder.exists():
        folder = folder.parent
    return folder


def inodes_left(path: Path) -> int | None:
    """How many files can still be created on the volume of `path`; None where the number is not fixed (btrfs)."""
    if not hasattr(os, "statvfs"):
        return None
    # f_favail and not f_ffree: what is reserved for root cannot be used.
    volume = os.statvfs(volume_of(path))
    return volume.f_favail if volume.f_files > 0 else None


def in_the_way(path: Path) -> str:
    """The sentence about a file in the place of a folder, or a folder in the place of a file."""
    kind, expected = ("folder", "file") if path.is_dir() else ("file", "folder")
    return f"{path} is a {kind} where a {expected} is expected; remove or rename it."


def require_folder(path: Path) -> None:
    """Raise BadData if something that is no folder is at `path`, at which nothing need be."""
    if path.exists() and not path.is_dir():
        raise BadData(in_the_way(path))


def require_possible(path: Path) -> None:
    """Raise UsageProblem for a path at which nothing can be: an address, a link that leads to itself, a name that is
    too long."""
    if path.parts[:1] == ("s3:",):
        raise UsageProblem(
            f"s3://{'/'.join(path.parts[1:])} is no place for this; expected a folder on this machine. Datasets "
            "given with --data, and `wm push`, may be in an object store."
        )
    try:
        path.stat()
    except OSError as error:
        if why := _impossible(error, path):
            raise UsageProblem(why) from None


def _impossible(error: OSError, path: Path) -> str:
    if error.errno == errno.ELOOP:
        return f"{path} is a link that leads to itself; remove it, or give another path."
    if error.errno == errno.ENAMETOOLONG:
        return f"the path {str(path)[:30]!r}... has a name that is too long for the disk; give a shorter one."
    return ""


def explain_misplaced(error: OSError) -> str:
    """The sentence about what is in the way, or cannot be, where the error comes from; empty for another error."""
    paths = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    if error.errno == errno.EISDIR:
        return next((in_the_way(path) for path in paths if path.is_dir()), "")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        places = [place for path in paths for place in (path, *path.parents)]
        if leads_nowhere := next((place for place in places if place.is_symlink() and not place.exists()), None):
            return f"{leads_nowhere} is a link to nothing; remove it, or give another path."
        return next((in_the_way(place) for place in places if place.exists() and not place.is_dir()), "")
    return next((why for path in paths if (why := _impossible(error, path))), "")


def explain_refused(error: OSError) -> str:
    """The sentence about what the system does not permit, or a volume that takes nothing new; empty for another error.
    Of a file that is not there yet, such as one under a staging name, it names the folder."""
    if not (isinstance(error, PermissionError) or error.errno == errno.EROFS):
        return ""
    if not isinstance(error.filename, str | bytes):
        return f"no permission ({error.strerror or error}); change the permissions or give another place."
    path = Path(os.fsdecode(error.filename))
    # Where a folder is closed one cannot tell whether the file is there.
    is_new = not os.path.lexists(path) and os.access(path.parent, os.X_OK)
    what = f"new files in {path.parent}" if is_new else path
    if error.errno == errno.EROFS:
        return f"no permission for {what}: its volume is read-only; give another place."
    return f"no permission for {what}; change its permissions or give another place."


def is_file_limit(error: OSError) -> bool:
    """Whether this process, or the machine, may open no more files: what could not be opened may be intact."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def explain(error: OSError) -> str:
    """An error of the operating system in one sentence."""
    why = error.strerror or str(error)
    if is_file_limit(error):
        where = f", such as {error.filename}" if error.filename else ""
        return f"no more files can be opened{where} ({why}); raise the limit with `ulimit -n`, or take fewer --workers."
    if error.errno == errno.ENOSPC and error.filename:
        inodes, volume = inodes_left(Path(error.filename)), volume_of(Path(error.filename))
        # Removing the partly written files has freed some inodes and some space.
        if inodes is not None and inodes < FEW_INODES and shutil.disk_usage(volume).free > 1 << 20:
            why = "there are no inodes left, so remove some small files"
    where = f" at {error.filename}" if error.filename else ""
    return f"the disk failed{where}: {why}; what was committed before is intact."
