"""Which V, M and C a page plays with. It says so in its head, and a report compares them with those of the run."""

import re
from pathlib import Path

from wm.artifacts import runs
from wm.artifacts.runs import Artifact
from wm.errors import BadData

NONE = "none"  # in place of the fingerprint of a C that the run did not have
_HEAD = 4096  # bytes of a page in which they stand
_LINE = re.compile(rb'<meta name="wm-models" content="([^"]*)">')
_MODEL = re.compile(r"([A-Za-z0-9_-]+(?:[./][A-Za-z0-9_-]+)*)=([0-9a-f]{64}|none)")


def describe_models(run: Path, vae: Artifact, mdnrnn: Artifact, controller: Artifact | None) -> str:
    """The names of V, M and C in the run with their fingerprints, as the head of a page has them."""
    trained = [each for each in (vae, mdnrnn, controller) if each is not None]
    models = [f"{each.folder.relative_to(run).as_posix()}={each.fingerprint}" for each in trained]
    return " ".join(models if controller else [*models, f"controller={NONE}"])


def changed_models(page: Path, run: Path) -> list[str] | None:
    """The names of the models of a page that are others in the run now; None if the page does not say which it has."""
    with page.open("rb") as file:
        line = _LINE.search(file.read(_HEAD))
    models = dict(_MODEL.findall(line[1].decode(errors="replace"))) if line else {}
    if not models:
        return None
    return [name for name, fingerprint in models.items() if _fingerprint(run / name) != fingerprint]


def _fingerprint(folder: Path) -> str:
    try:
        artifact = runs.read_any(folder)
    except BadData:
        return ""  # a damaged one is not what the page has
    return artifact.fingerprint if artifact else NONE
