"""A cache of the parts' tables, so that opening ten thousand episodes reads one file. It can always be made again."""

import hashlib
import json
from pathlib import Path
from typing import Any

from wm.artifacts import durable

NAME = ".index.json"


def read(path: Path) -> dict[str, Any]:
    """What the cache of the dataset at `path` says, by part; nothing if it is torn, altered or absent. Its first line
    is the digest of the rest."""
    try:
        digest, _, body = (path / NAME).read_bytes().partition(b"\n")
        if digest.decode() == hashlib.sha256(body).hexdigest():
            found: dict[str, Any] = json.loads(body)
            return found
    except (OSError, ValueError):
        pass
    return {}


def write(path: Path, entries: dict[str, Any]) -> None:
    """Replace the cache. A read-only dataset does without."""
    body = json.dumps(entries, separators=(",", ":")).encode()
    try:
        durable.write_bytes(path / NAME, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    except OSError:
        return
