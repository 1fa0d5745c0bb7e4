"""Checking every byte of a dataset, and setting broken parts aside so that the rest can be used."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wm.artifacts import durable, manifest
from wm.episodes.dataset import QUARANTINE, committed_parts, read_root, read_table, unexplained_gaps
from wm.episodes.parts import KIND as PART
from wm.episodes.parts import ROOT_KIND, root_files
from wm.episodes.schema import forms, part_name, part_range
from wm.episodes.shards import METADATA, Shard
from wm.errors import BadData, MissingInput


@dataclass(frozen=True)
class Checked:
    """What was found of the root, a part, or (without files) a gap between parts; `problem` is empty if it is whole."""

    folder: Path
    files: int
    problem: str = ""


def check(path: Path) -> list[Checked]:
    """Check the root, every part against its checksums and the schema, and whether parts are missing in between."""
    try:
        recipe: dict[str, Any] | None = read_root(path)
        found = [Checked(path, manifest.verify(path, ROOT_KIND))]
    except (BadData, MissingInput) as error:
        recipe, found = None, [Checked(path, 0, str(error))]
    names = sorted(name for name in os.listdir(path) if part_range(name) is not None)
    found += [_check_part(path / name, recipe) for name in names]
    if not any(checked.problem for checked in found):
        for first, last in unexplained_gaps(path, committed_parts(path), bool(read_root(path).get("evicts"))):
            why = f"{path} has lost episodes {first} to {last - 1}."
            found.append(Checked(path / part_name(first, last), 0, why))
    return found


def _check_part(folder: Path, recipe: dict[str, Any] | None) -> Checked:
    try:
        if folder.is_symlink():
            raise BadData(f"{folder} is a link; links inside a dataset are not followed.")
        files = manifest.verify(folder, PART)
        table = read_table(folder)
        if recipe is not None:
            for name, form in forms(recipe, table["ends"][-1]).items():
                shard = Shard(folder / name, form)
                for number in range(form.chunks):
                    shard.chunk(number)
    except (BadData, MissingInput) as error:
        return Checked(folder, 0, str(error))
    return Checked(folder, files)


def repair(path: Path) -> list[str]:
    """Set broken and lost parts aside and write a broken root anew from a part. Returns what was done, in words.

    Hold the dataset's lock. Nothing is deleted; a second repair finds nothing to do.
    """
    done = []
    for checked in check(path):
        if not checked.problem:
            continue
        if checked.folder == path:
            done.append(_write_root(path))
        else:
            aside = _set_aside(path, checked.folder)
            done.append(f"{checked.folder.name} moved to {aside}")
    # What was broken may have hidden a gap.
    return done + (repair(path) if done else [])


def _set_aside(path: Path, folder: Path) -> Path:
    """Move a part to quarantine; a lost one leaves its name there, which says that its episodes are known to lack."""
    durable.make_folder(path / QUARANTINE)
    aside, number = path / QUARANTINE / folder.name, 1
    while aside.exists() or aside.is_symlink():
        number += 1
        aside = path / QUARANTINE / f"{folder.name}.{number}"
    if folder.exists() or folder.is_symlink():
        os.rename(folder, aside)
    else:
        durable.make_folder(aside)
    durable.fsync_folder(path / QUARANTINE)
    durable.fsync_folder(path)
    return aside


def _write_root(path: Path) -> str:
    """The root's files again, from the recipe that every part carries."""
    for name in sorted(os.listdir(path)):
        if part_range(name) is None or _check_part(path / name, None).problem:
            continue
        recipe = manifest.read_json(path / name / METADATA)["attributes"]["recipe"]
        for file, data in root_files(recipe).items():
            if (path / file).is_dir():
                shutil.rmtree(path / file)
            durable.write_bytes(path / file, data)
        return f"the root of {path} was written anew from {name}"
    raise BadData(f"{path} has neither a whole root nor a whole part; collect again at another place with --data.")
