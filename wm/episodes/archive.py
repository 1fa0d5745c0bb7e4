"""Datasets by recipe: the one at a path, and those of other recipes, which move to the `archive` folder next to it."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wm.artifacts import durable, json_reader, links, locks, manifest
from wm.artifacts.json_reader import ANYTHING, COUNT, FLAG, NUMBER, TEXT, table
from wm.artifacts.recipe import differences
from wm.artifacts.runs import ARCHIVE, free_name
from wm.episodes import mirror as mirrors
from wm.episodes.committed_parts import committed_parts
from wm.episodes.dataset import Dataset, fingerprint_of, read_root
from wm.episodes.mirror import PROVENANCE
from wm.episodes.schema import describe_origin
from wm.episodes.writer import Writer, create
from wm.errors import RecipeMismatch, UsageProblem

RECORD = table(
    {"episodes": COUNT},
    {"finished": TEXT, "command": TEXT, "wall_seconds": NUMBER, "continues": FLAG},
    others=ANYTHING,
)


def read_provenance(path: Path) -> list[dict[str, Any]]:
    """A record for every session of collecting: command, seed, versions, time. Empty without a file. A session's last
    line counts: the others tell what it had taken before.

    Raises BadData for a link, and with the number of a damaged line."""
    file = path / PROVENANCE
    try:
        data = durable.read_log(file)
    except OSError:
        # Provenance is a note beside the episodes, in no fingerprint: a dataset without it is used all the same.
        return []
    way_out = f"restore it, or remove {file} to go without"
    lines = data.split(b"\n")[:-1]  # what follows the last line feed was torn by a kill
    records: list[dict[str, Any]] = []
    for k, line in enumerate(lines, 1):
        record = json_reader.parse(line, f"{file}, line {k}", RECORD, way_out)
        # A session that goes on writes its line again with what it has taken by then, so the line before it is dropped.
        if record.pop("continues", False):
            del records[-1:]
        records.append(record)
    return records


def collecting_seconds(path: Path) -> float:
    """The time of all sessions of collecting, of those that were killed until their last record."""
    return sum(float(record.get("wall_seconds", 0.0)) for record in read_provenance(path))


def find_dataset(path: Path, recipe: dict[str, Any]) -> Dataset | None:
    """The dataset of this recipe at `path`, possibly with episodes missing; None if no dataset of this recipe exists.

    Raises UsageProblem for a folder that is no dataset.
    """
    _refuse_other_folder(path)
    if not path.exists():
        return None
    root = read_root(path)
    return Dataset(path, root, committed_parts(path, root)) if fingerprint_of(root) == fingerprint_of(recipe) else None


@dataclass(frozen=True)
class Claim:
    """A locked path for the dataset of one recipe. `dataset` is None before the first episode is collected. After every
    part that is committed, `committed` is told how many episodes there are."""

    path: Path
    recipe: dict[str, Any]
    dataset: Dataset | None
    log: Callable[[str], None]
    committed: Callable[[int], None] | None = None

    def missing(self, episodes: int) -> list[int]:
        """Indices of the episodes below `episodes` that are still to be collected."""
        return self.dataset.absent(episodes) if self.dataset else list(range(episodes))

    def open_writer(self, allow: Callable[[int], None]) -> Writer:
        """Open the dataset for writing. A new dataset is created; a dataset of another recipe is archived first."""
        dataset = self.dataset
        if dataset is None:
            _archive(self.path, self.recipe, self.log)
            dataset = create(self.path, self.recipe)
        return Writer(dataset, allow, self.committed)

    def record(self, provenance: dict[str, Any]) -> None:
        """Append to the dataset's provenance."""
        record(self.path, provenance)


def record(path: Path, provenance: dict[str, Any]) -> None:
    """Append to the provenance of the dataset at `path`."""
    line = json.dumps(provenance).encode() + b"\n"
    if (mirror := mirrors.of(path)) is not None:
        mirror.record(line)
    durable.append(path / PROVENANCE, line)


@contextmanager
def claim(path: Path, recipe: dict[str, Any], keep_current: bool, log: Callable[[str], None]) -> Iterator[Claim]:
    """Lock `path` for the dataset of `recipe`, and restore that dataset if the archive has it.

    A dataset of another recipe stays at `path` until the first episode is written. Raises Locked, UsageProblem for a
    folder that is no dataset, and with `keep_current` RecipeMismatch for a dataset of another recipe.
    """
    _refuse_other_folder(path)  # before a lock file is created next to it
    with locks.exclusive(path):
        if (mirror := mirrors.of(path)) is not None:
            mirror.refresh()
        dataset = find_dataset(path, recipe)
        if mirror is not None and dataset is None and path.exists():
            raise RecipeMismatch(
                f"{path} was collected by another recipe ({_changes(path, recipe)}), and an object store has no "
                "archive; name another address with --data."
            )
        if dataset is None and path.exists() and keep_current:
            raise RecipeMismatch(
                f"{path} was collected by another recipe ({_changes(path, recipe)}) and --keep-current is given; "
                "drop the option to archive it, or name another path with --data."
            )
        if dataset is None and path.is_symlink():
            raise UsageProblem(
                f"{path} is a link and leads to no dataset of this recipe; expected a folder, which can be archived. "
                "Remove the link, or name another path with --data."
            )
        if dataset is None and (archived := _archived(path, recipe)).exists():
            _archive(path, recipe, log)
            log(f"episodes: restored from {archived}")
            os.rename(archived, path)
            dataset = find_dataset(path, recipe)
        yield Claim(path, recipe, dataset, log)


def _refuse_other_folder(path: Path) -> None:
    """Raise UsageProblem if something exists at `path` that is no dataset."""
    links.refuse(path.parent / ARCHIVE)
    if path.exists() and not (path / manifest.NAME).is_file():
        raise UsageProblem(f"{path} exists and is not a dataset; name another path with --data.")


def _archived(path: Path, recipe: dict[str, Any]) -> Path:
    """Where the dataset of `recipe` is archived."""
    return links.refuse(path.parent / ARCHIVE / f"{path.stem}-{fingerprint_of(recipe)[:8]}.zarr")


def _changes(path: Path, recipe: dict[str, Any]) -> str:
    """How `recipe` differs from that of the dataset at `path`."""
    return ", ".join(differences(_as_artifacts(read_root(path)), _as_artifacts(recipe)))


def _as_artifacts(recipe: dict[str, Any]) -> dict[str, Any]:
    """A dataset's recipe in the form of an artifact's: the sources of its environment are its inputs."""
    settings = {name: value for name, value in recipe.items() if name not in ("sources", "origin")}
    if origin := describe_origin(recipe):
        settings["origin"] = origin
    return {"settings": settings, "inputs": recipe.get("sources", {})}


def _archive(path: Path, recipe: dict[str, Any], log: Callable[[str], None]) -> None:
    """Move the dataset at `path`, of another recipe than `recipe`, to the archive."""
    if not path.exists():
        return
    target = free_name(_archived(path, read_root(path)))
    log(f"episodes: {_changes(path, recipe)}; the dataset of the old recipe moves to {target}")
    durable.make_folder(target.parent)
    os.rename(path, target)
