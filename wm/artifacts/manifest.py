"""`manifest.json`: the files of a folder, with size and sha256 of each, and of the manifest itself.

Zarr reads a missing chunk as zeros, and most codecs let bit flips pass. So completeness and integrity come from here.
Digests tell of damage and of edited values. They are no signatures: who edits a file can compute them again.
"""

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Any

from wm.artifacts import durable, json_reader, links
from wm.artifacts.json_reader import ANYTHING, COUNT, TABLE, TEXT, Schema, table, table_of
from wm.errors import BadData, MissingInput, UsageProblem
from wm.units import format_size

NAME = "manifest.json"
# Bytes of the files of an artifact or a part: latents of 10**8 frames have 13 GB. A sparse file that claims more takes
# no place on the disk, and would be hashed for hours.
LARGEST = 1 << 34
SCHEMA = table({"kind": TEXT, "files": table_of(table({"size": COUNT, "sha256": TEXT}))}, others=ANYTHING)
_OURS = table({"kind": TEXT, "files": TABLE, "sha256": TEXT}, others=ANYTHING)  # other programs have manifests too
# No dot first: hidden names are those of staging paths, and `..` would leave the folder.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 ._@+-]*")


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes. Raises BadData for more than LARGEST bytes."""
    with durable.open_file(path, "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > LARGEST:
            raise BadData(f"{path} has {_at_most(size)}, so restore it or remove it.")
        return hashlib.file_digest(file, "sha256").hexdigest()


def _at_most(size: int) -> str:
    return f"{format_size(size)}; expected at most {format_size(LARGEST)}"


def sha256_json(value: Any) -> str:
    """Hex digest of a value's canonical JSON."""
    return hashlib.sha256(durable.canonical_json(value)).hexdigest()


def of(body: dict[str, Any], files: dict[str, bytes]) -> bytes:
    """The manifest of a folder that will hold these files, by relative name."""
    listed = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    return sealed({**body, "files": listed})


def write(folder: Path, body: dict[str, Any], files: list[str] | None = None) -> None:
    """Write the manifest of `folder`: `body`, and every file below it (or only `files`)."""
    if files is None:
        paths = (path for path in links.walk(folder) if path.is_file() and path.name != NAME)
        files = [path.relative_to(folder).as_posix() for path in paths]
    listed = {
        name: {"size": (folder / name).stat().st_size, "sha256": sha256_file(folder / name)} for name in sorted(files)
    }
    durable.write_bytes(folder / NAME, sealed({**body, "files": listed}))


def sealed(value: dict[str, Any]) -> bytes:
    """The canonical JSON of a table together with its own digest, `sha256`. `read_sealed` reads it."""
    return durable.canonical_json({**value, "sha256": sha256_json(value)})


def parse_sealed(data: bytes, source: str, schema: Schema, way_out: str) -> dict[str, Any]:
    """The table in `data`, without its digest. Raises BadData naming `source` if the digest is missing or differs."""
    value: dict[str, Any] = json_reader.parse(data, source, TABLE, way_out)
    digest = value.pop("sha256", None)
    # The bytes are compared, not the values, so that a single flipped bit is detected.
    if digest is None or data != sealed(value):
        raise BadData(f"{source} {'has no' if digest is None else 'does not match its own'} checksum; {way_out}.")
    json_reader.validate(value, source, schema, way_out)
    return value


def read_sealed(path: Path, schema: Schema, way_out: str = json_reader.WAY_OUT) -> dict[str, Any]:
    """The table in a file written with `sealed`, without its digest. Raises BadData if it was changed."""
    return parse_sealed(json_reader.read_small(path, way_out), str(path), schema, way_out)


def locate(folder: Path, name: str) -> Path:
    """The path of `name` below `folder`. Raises BadData for a name that leaves the folder, or a link in the path."""
    path = folder
    for piece in name.split("/"):
        if not _PLAIN.fullmatch(piece):
            raise BadData(f"{folder} lists a file {name[:80]!r}; expected plain names below it, so it is not opened.")
        path = path / piece
        links.refuse(path)
    return path


def require_outside(path: Path) -> None:
    """Raise UsageProblem if `path`, at which something is to be made, lies within a dataset, an artifact, or another
    folder that a manifest of ours describes: it could replace a file there, and would be moved or removed with it."""
    # resolve(): a link above the path must not hide that it leads into something finished.
    for folder in path.resolve().parents:
        if kind_in(folder):
            raise UsageProblem(
                f"{path} is inside {folder.name}, which is finished and has what its {NAME} lists; name a path outside "
                "of it."
            )


def kind_in(folder: Path) -> str:
    """The kind in the manifest of a folder; empty if there is none, or that of another program."""
    try:
        return str(json_reader.read(folder / NAME, _OURS)["kind"])
    except (BadData, OSError):
        return ""


def read_json(path: Path) -> dict[str, Any]:
    """The table in a small JSON file. Raises BadData if it is none."""
    value: dict[str, Any] = json_reader.read(path, TABLE)
    return value


def read(folder: Path, kind: str, only: str | None = None) -> dict[str, Any]:
    """The manifest of `folder`, checked against its own digest and the expected kind; the size of every file, or of
    `only` one, is checked too."""
    path = links.refuse(folder / NAME)
    if path.exists() and not path.is_file():
        raise BadData(f"{path} is no file; remove it, and restore it or create the {kind or 'artifact'} again.")
    if not path.is_file():
        raise MissingInput(f"{folder} has no {NAME}; expected a finished {kind}.")
    manifest = read_sealed(path, SCHEMA, f"restore it or create the {kind} again")
    if manifest["kind"] != kind:
        raise BadData(f"{folder} holds a {manifest['kind']!r}; expected {kind!r}, so give the path or name of one.")
    if (size := sum(entry["size"] for entry in manifest["files"].values())) > LARGEST:
        raise BadData(f"{path} lists files of {_at_most(size)}, so restore it or create the {kind} again.")
    for name, entry in manifest["files"].items():
        file = locate(folder, name)
        if only in (None, name) and not _is_file_of(file, entry["size"]):
            raise BadData(f"{file} is missing or has another size than its manifest says; create the {kind} again.")
    return {**manifest, "sha256": sha256_json(manifest)}


def _is_file_of(path: Path, size: int) -> bool:
    try:
        status = path.lstat()
    except PermissionError:
        # Unreadable is no damage: it is told to the user, and nothing is made again for it.
        raise
    except OSError:
        # lstat, so that a link in place of the file counts as another file.
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size


def verify(folder: Path, kind: str) -> int:
    """Check the sha256 of every file of `folder`. Returns how many; raises BadData at the first bad one."""
    manifest = read(folder, kind)
    for name, entry in manifest["files"].items():
        if sha256_file(folder / name) != entry["sha256"]:
            raise BadData(f"{folder / name} does not match its checksum; create the {kind} again.")
    return len(manifest["files"])
