"""What can be removed: files of killed processes, and on request what can be made again."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wm.artifacts import durable, links, locks, manifest
from wm.artifacts.runs import ARCHIVE, SCRATCH, read_recipe
from wm.episodes.committed_parts import QUARANTINE
from wm.episodes.parts import ROOT_KIND, STAGING
from wm.episodes.schema import part_range
from wm.errors import BadData, Locked

KINDS = {
    "orphans": "left by a process that was killed",
    "checkpoints": "of an artifact that is finished",
    "quarantine": "parts that `wm verify --repair` set aside",
    "unfinished": "work that the same command would resume",
    "archive": "artifacts of other recipes",
}
USELESS = ("orphans", "checkpoints")  # kinds that no command reads again
_PLACES = (STAGING, QUARANTINE, SCRATCH, ARCHIVE)
_DAMAGED = "-damaged0"  # in the archive, what was no artifact any more


@dataclass(frozen=True)
class Leftover:
    """A file or folder that can be removed; a process that still writes it holds the lock of `owner`."""

    path: Path
    kind: str
    bytes: int
    owner: Path


def find(roots: Sequence[Path]) -> list[Leftover]:
    """All leftovers below the roots. Raises BadData if one of them is a link."""
    return [leftover for root in roots if root.is_dir() for leftover in _below(root)]


def remove(leftovers: Sequence[Leftover]) -> tuple[list[Leftover], list[Leftover], list[Leftover]]:
    """Remove them, except what a running process holds. Returns (removed, in use, refused by the operating system)."""
    removed: list[Leftover] = []
    in_use: list[Leftover] = []
    refused: list[Leftover] = []
    for leftover in leftovers:
        try:
            with locks.locked(leftover.owner):
                gone = _remove(leftover)
        except Locked:
            in_use.append(leftover)
        except OSError:
            # What the system does not let go of is counted; the others are still removed.
            refused.append(leftover)
        else:
            (removed if gone else refused).append(leftover)
    return removed, in_use, refused


def _below(folder: Path) -> Iterator[Leftover]:
    for path in links.walk(folder, lambda path: _classify(path) is None):
        if (classified := _classify(path)) is not None:
            links.refuse(path)
            kind, owner = classified
            size = durable.folder_size(path) if path.is_dir() else path.stat().st_size
            if size or path.name not in (STAGING, QUARANTINE):
                yield Leftover(path, kind, size, owner)


def _classify(path: Path) -> tuple[str, Path] | None:
    """The kind of leftover and its owner; None if the path is none. Other programs use the same names, so what has one
    is ours only beside or with a manifest or a recipe of ours."""
    if temporary := durable.TEMPORARY.fullmatch(path.name):
        return "orphans", _owner(path.with_name(temporary[1]))
    if path.is_symlink():  # which `_below` names
        ours = (path.name in _PLACES or path.name.endswith(".partial")) and manifest.kind_in(path.parent)
        return ("orphans", path.parent) if ours else None
    if not path.is_dir():
        return None
    if path.name in (STAGING, QUARANTINE) and manifest.kind_in(path.parent) == ROOT_KIND:
        return "orphans" if path.name == STAGING else "quarantine", path.parent
    if path.name == SCRATCH and manifest.kind_in(path.parent):
        return "checkpoints", path.parent
    if path.parent.name == ARCHIVE and (_DAMAGED in path.name or _is_ours(path)):
        return "archive", path.parent
    if path.name.endswith(".partial") and (_is_ours(path) or _has_only_begun(path)):
        return "unfinished", path.with_name(path.name.removesuffix(".partial"))
    return None


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds an artifact or a dataset, finished or not."""
    try:
        return bool(manifest.kind_in(folder) or read_recipe(folder))
    except (BadData, OSError):
        # What cannot be read is not known to be ours, and is never removed.
        return False


def _has_only_begun(folder: Path) -> bool:
    """Whether a kill came before the recipe of the work in a folder was written."""
    # A folder that may not be read may hold work, so it counts as more than begun.
    with suppress(PermissionError):
        return all(durable.TEMPORARY.fullmatch(path.name) for path in folder.iterdir())
    return False


def _owner(path: Path) -> Path:
    """Whose lock a process holds that writes `path`: the dataset's, the unfinished artifact's, or its own."""
    for folder in (path, *path.parents):
        if folder.name.endswith(".partial"):
            return folder.with_name(folder.name.removesuffix(".partial"))
        if part_range(path.name) is not None or (folder != path and folder.suffix == ".zarr"):
            return folder if folder.suffix == ".zarr" else path.parent
    return path


def _remove(leftover: Leftover) -> bool:
    """Remove it; whether nothing is left."""
    if leftover.kind != "quarantine":
        return durable.remove(leftover.path)
    # The names stay at every moment: they list the episodes known to be lost, without which the dataset is refused.
    gone = True
    for part in leftover.path.iterdir():
        if part.is_dir() and not part.is_symlink():
            for inside in part.iterdir():
                gone = durable.remove(inside, link=True) and gone
        else:  # a repair sets links aside too
            durable.write_bytes(part, b"")
    return gone
