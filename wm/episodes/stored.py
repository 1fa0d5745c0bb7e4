"""Datasets in an object store: finding them, checking every byte of one, and what killed writers left in it."""

from collections.abc import Sequence
from pathlib import Path

from wm.artifacts import durable, locks, manifest
from wm.artifacts.object_store import Entry, ObjectStore
from wm.episodes import leftovers, mirror
from wm.episodes.dataset import Dataset, read_root
from wm.episodes.leftovers import Leftover
from wm.episodes.mirror import Mirror
from wm.episodes.parts import ROOT_KIND
from wm.episodes.repair import CheckResult, check_part
from wm.episodes.schema import part_range
from wm.episodes.shards import METADATA
from wm.errors import BadData, Locked, MissingInput

AGE = 86_400  # seconds after which a part without a manifest is nobody's: to put one takes seconds
MAX_PART_BYTES = 1 << 30  # of a part that is checked; ours have 10 MB


def find_datasets(store: ObjectStore) -> list[str]:
    """The addresses of the datasets at or below the address of a store."""
    entries = store.entries()
    folders = [name.removesuffix(manifest.NAME).rstrip("/") for name in entries if name.endswith(manifest.NAME)]
    roots = [folder for folder in folders if part_range(folder.rpartition("/")[2]) is None]
    return [f"{store.address}/{root}".rstrip("/") for root in roots if f"{root}/{METADATA}".lstrip("/") in entries]


def check(mirrored: Mirror) -> list[CheckResult]:
    """Check the root, every part against its checksums and the schema, and whether the dataset can be opened. All of it
    is read from the store, a part at a time, not from what lies here."""
    entries, results = mirrored.store.entries(), []
    scratch = durable.staging_path(mirrored.folder)
    folder = scratch / mirrored.folder.name
    try:
        root = _check_root(mirrored, entries, folder)
        recipe = None if root.problem else read_root(folder)
        results.append(root)
        for name, below in _by_folder(entries).items():
            if part_range(name) is not None and f"{name}/{manifest.NAME}" in below:
                problem = _copy(mirrored, name, below, folder / name)
                results.append(CheckResult(folder / name, 0, problem) if problem else check_part(folder / name, recipe))
                durable.remove(folder / name)
    finally:
        durable.remove(scratch)
    named = [_as_of(mirrored.folder, folder, result) for result in results]
    return named if any(result.problem for result in named) else named + _check_whole(mirrored)


def _by_folder(entries: dict[str, Entry]) -> dict[str, dict[str, Entry]]:
    """The entries in each folder of the dataset, and a file of the root by its own name."""
    folders = dict[str, dict[str, Entry]]()
    for name, entry in entries.items():
        folders.setdefault(name.partition("/")[0], {})[name] = entry
    return folders


def _as_of(folder: Path, copied: Path, result: CheckResult) -> CheckResult:
    """The result for a copy, as one of what was copied."""
    problem = result.problem.replace(str(copied), str(folder))
    return CheckResult(folder / result.folder.relative_to(copied), result.files, problem)


def _check_root(mirrored: Mirror, entries: dict[str, Entry], folder: Path) -> CheckResult:
    if manifest.NAME not in entries:
        raise MissingInput(f"{mirrored.store.address} is no dataset; expected a {manifest.NAME} there.")
    durable.make_folder(folder.parent)
    if problem := _copy(mirrored, "", {name: entries[name] for name in entries if "/" not in name}, folder):
        return CheckResult(folder, 0, problem)
    try:
        read_root(folder)
        return CheckResult(folder, manifest.verify(folder, ROOT_KIND))
    except (BadData, MissingInput) as error:
        # One result for each part: what is damaged must not hide what follows.
        return CheckResult(folder, 0, str(error))


def _copy(mirrored: Mirror, part: str, entries: dict[str, Entry], folder: Path) -> str:
    """Copy the entries of a part, or of the root. Returns what prevents it."""
    below = f"{part}/" if part else ""
    size = sum(entry.size for entry in entries.values())
    if size > MAX_PART_BYTES:
        return f"{folder} has {size} bytes; expected less than {MAX_PART_BYTES}."
    mirrored.make_room(size)
    try:
        for name in entries:
            manifest.locate(folder, name.removeprefix(below))
        files = {name.removeprefix(below): mirrored.store.read(name, entry.size) for name, entry in entries.items()}
    except (BadData, MissingInput) as error:
        # Returned, not raised, because the other parts are still to be checked.
        return str(error)
    durable.write_folder(folder, files)
    return ""


def _check_whole(mirrored: Mirror) -> list[CheckResult]:
    try:
        mirrored.refresh()
        Dataset.open(mirrored.folder)
    except (BadData, MissingInput) as error:
        return [CheckResult(mirrored.folder, 0, str(error))]
    return []


def find_leftovers(mirrored: Mirror, now: float) -> list[Leftover]:
    """What has no manifest: left by a killed process or, where it is younger than a day, perhaps being written."""
    folders, all_leftovers = _by_folder(mirrored.store.entries()), []
    for name, below in folders.items():
        unlisted = part_range(name) is not None and f"{name}/{manifest.NAME}" not in below
        if unlisted or (name == METADATA and manifest.NAME not in folders):
            old = max(entry.modified for entry in below.values()) < now - AGE
            path, size = mirrored.folder / name, sum(entry.size for entry in below.values())
            all_leftovers.append(Leftover(path, "orphans" if old else "unfinished", size, mirrored.folder))
    return all_leftovers


def remove(removable: Sequence[Leftover]) -> tuple[list[Leftover], list[Leftover], list[Leftover]]:
    """Remove leftovers, in object stores and here. Returns what `leftovers.remove` does."""
    here, written = [], []
    for leftover in removable:
        mirrored = mirror.of(leftover.owner)
        if mirrored is None or leftover.path.name.startswith("."):  # hidden names are only used here
            here.append(leftover)
            continue
        try:
            with locks.locked(mirrored.folder):
                _remove_stored(mirrored.store, leftover.path.name)
        except Locked:
            # A writer of this machine is at work there; its part is not left over.
            written.append(leftover)
    _, in_use, refused = leftovers.remove(here)
    in_use += written
    return [leftover for leftover in removable if leftover not in (*in_use, *refused)], in_use, refused


def _remove_stored(store: ObjectStore, name: str) -> None:
    """Remove a part, or the root's metadata, unless it has got its manifest since it was found."""
    folder = "" if name == METADATA else f"{name}/"
    if not store.exists(f"{folder}{manifest.NAME}"):
        store.remove(store.entries(name) if folder else [name])
