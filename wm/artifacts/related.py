"""Artifacts whose recipes differ from that of a run in a few settings only."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from wm.artifacts import json_reader, manifest, schemas
from wm.artifacts.runs import RECIPE_FILE, Run, read_recipe, read_whole
from wm.errors import BadData, MissingInput


def differing_only_in(settings: Collection[str], run: Run) -> list[tuple[Path, dict[str, Any]]]:
    """Artifacts of the run's name whose recipes differ from its own in these settings at most: folders and settings.

    They may be finished or not, current or archived. Finished ones that are damaged are left out.
    """
    expected, artifacts = _without(run.recipe.as_json(), settings), []
    for folder in (run.folder, *run.archived):
        recipe = _read_recipe(folder, run.recipe.kind)
        if recipe is not None and _without(recipe, settings) == expected:
            artifacts.append((folder, recipe["settings"]))
    return artifacts


def _without(recipe: dict[str, Any], settings: Collection[str]) -> dict[str, Any]:
    others = {name: value for name, value in recipe["settings"].items() if name not in settings}
    return {**recipe, "settings": others}


def _read_recipe(folder: Path, kind: str) -> dict[str, Any] | None:
    """The recipe of the artifact in `folder`, as_json; None if it is damaged, missing or of another kind."""
    try:
        if (folder / manifest.NAME).exists():
            # `read_whole` hashes every file: a search takes over what it finds, so damage must be seen here.
            return dict(read_whole(folder, kind).manifest["recipe"])
        recipe = read_recipe(folder)
        json_reader.validate(recipe, str(folder / RECIPE_FILE), schemas.recipe(kind))
        return recipe
    except (MissingInput, BadData):
        return None
