"""`wm verify`: every checksum of a dataset, an artifact, or all of them below a folder."""

import json
from pathlib import Path

from wm.artifacts import manifest
from wm.episodes.dataset import KIND as EPISODES
from wm.episodes.dataset import Dataset
from wm.episodes.parts import KIND as PART
from wm.errors import BadData, MissingInput


def verify(path: Path) -> dict[str, int]:
    """Artifacts found at or below `path`, with the number of files checked. Raises BadData at the first bad one."""
    found: dict[str, int] = {}
    for listed in sorted(path.rglob(manifest.NAME)):
        folder = listed.parent
        if any(part.startswith(".") or part.endswith(".partial") for part in folder.relative_to(path).parts):
            continue
        kind = _kind(listed)
        found[str(folder)] = manifest.verify(folder, kind)
        if kind == EPISODES:
            held = Dataset.open(folder).parts
            beyond = len(list(folder.glob("part-??????-??????"))) - len(held)
            if beyond:
                raise BadData(f"{folder} has {beyond} parts that do not follow on the others; one is missing before.")
        elif kind == PART:
            Dataset.open(folder.parent)
    if not found:
        raise MissingInput(f"{path} holds no dataset and no artifact; expected a {manifest.NAME} somewhere in it.")
    return found


def _kind(listed: Path) -> str:
    try:
        return str(json.loads(listed.read_bytes())["kind"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadData(
            f"{listed} is not a readable manifest ({error}); restore it or make the artifact again."
        ) from None
