"""`manifest.json`: what a folder should hold, with size and sha256 of every file and of the manifest itself.

Zarr reads a missing chunk as zeros and most codecs let bit flips pass, so completeness and integrity come from here.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from wm.artifacts import durable
from wm.errors import BadData, MissingInput

NAME = "manifest.json"


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Hex digest of a value's canonical JSON."""
    return hashlib.sha256(durable.canonical_json(value)).hexdigest()


def write(folder: Path, body: dict[str, Any], files: list[str] | None = None) -> dict[str, Any]:
    """Write the manifest of `folder`: `body`, and every file below it (or only `files`). Returns the manifest."""
    if files is None:
        found = (path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
        files = [path.relative_to(folder).as_posix() for path in found]
    listed = {
        name: {"size": (folder / name).stat().st_size, "sha256": sha256_file(folder / name)} for name in sorted(files)
    }
    manifest = {**body, "files": listed}
    manifest["sha256"] = sha256_json(manifest)
    durable.write_json(folder / NAME, manifest)
    return manifest


def read(folder: Path, kind: str) -> dict[str, Any]:
    """The manifest of `folder`, checked against its own digest and the expected kind; file sizes are checked too."""
    path = folder / NAME
    if not path.is_file():
        raise MissingInput(f"{folder} has no {NAME}; expected a finished {kind} there.")
    try:
        manifest = json.loads(path.read_bytes())
        digest = manifest.pop("sha256")
    except (ValueError, KeyError, AttributeError) as error:
        raise BadData(f"{path} is not a readable manifest ({error}); restore it or make the {kind} again.") from None
    if digest != sha256_json(manifest):
        raise BadData(f"{path} does not match its own checksum; restore it or make the {kind} again.")
    if manifest.get("kind") != kind:
        raise BadData(f"{folder} holds a {manifest.get('kind')!r}; expected a {kind!r}.")
    for name, entry in manifest["files"].items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != entry["size"]:
            raise BadData(f"{file} is missing or has another size than its manifest says; make the {kind} again.")
    return {**manifest, "sha256": digest}


def verify(folder: Path, kind: str) -> int:
    """Check the sha256 of every file of `folder`. Returns how many; raises BadData at the first bad one."""
    manifest = read(folder, kind)
    for name, entry in manifest["files"].items():
        if sha256_file(folder / name) != entry["sha256"]:
            raise BadData(f"{folder / name} does not match its checksum; make the {kind} again.")
    return len(manifest["files"])
