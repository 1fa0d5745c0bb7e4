"""The datasets of an environment: whether the one that is there is the one wanted, and what moves to the archive."""

import json
import os
from pathlib import Path
from typing import Any

from stages import console
from stages.session import Session
from wm.artifacts import durable, manifest
from wm.artifacts.recipe import differences
from wm.episodes.dataset import Dataset, committed_parts, fingerprint_of, read_root
from wm.errors import RecipeMismatch, UsageProblem

PROVENANCE = "provenance.jsonl"


def read_provenance(path: Path) -> list[dict[str, Any]]:
    """Who collected what and when, a line for every go that came to its end; empty where that is not known."""
    try:
        lines = (path / PROVENANCE).read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return []
    return [line for line in found if isinstance(line, dict)]


def open_same(path: Path, recipe: dict[str, Any]) -> Dataset | None:
    """The dataset at `path` if there is one of this recipe, with whatever is missing in between."""
    if not path.exists():
        return None
    if not (path / manifest.NAME).is_file():
        raise UsageProblem(f"{path} exists and is not a dataset; give another place with --data.")
    old = read_root(path)
    return Dataset(path, old, committed_parts(path)) if fingerprint_of(old) == fingerprint_of(recipe) else None


def _archived(path: Path, recipe: dict[str, Any]) -> Path:
    return path.parent / "archive" / f"{path.stem}-{fingerprint_of(recipe)[:8]}.zarr"


def restore_archived_dataset(path: Path, recipe: dict[str, Any], session: Session) -> None:
    """Bring the wanted dataset back if the archive has it; refuse, if so asked, to touch one of another recipe."""
    stale = path.exists() and open_same(path, recipe) is None
    if stale and session.keep_current:
        why = ", ".join(differences({"settings": read_root(path)}, {"settings": recipe}))
        raise RecipeMismatch(
            f"{path} was collected by another recipe ({why}) and --keep-current is given; "
            "drop the option to archive it, or give another place with --data."
        )
    if (archived := _archived(path, recipe)).exists() and (stale or not path.exists()):
        archive(path, recipe)
        console.say(f"episodes: found in the archive, moved back from {archived}")
        os.rename(archived, path)


def archive(path: Path, recipe: dict[str, Any]) -> None:
    """Move a dataset of another recipe out of the way."""
    if not path.exists():
        return
    old = read_root(path)
    aside = _archived(path, old)
    why = ", ".join(differences({"settings": old}, {"settings": recipe}))
    console.say(f"episodes: {why}; the old ones move to {aside}")
    durable.make_folder(aside.parent)
    os.rename(path, aside)
