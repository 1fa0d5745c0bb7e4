"""A cache of the parts' tables, so that opening 10,000 episodes reads one file. It can always be rebuilt."""

import hashlib
import json
from pathlib import Path
from typing import Any

from wm.artifacts import durable

NAME = ".index.json"


def read(path: Path) -> dict[str, Any]:
    """The cached entries of the dataset at `path` by part; empty if the cache is missing or damaged. Its first line is
    the digest of the rest."""
    try:
        digest, _, body = (path / NAME).read_bytes().partition(b"\n")
        if digest.decode() == hashlib.sha256(body).hexdigest():
            entries: dict[str, Any] = json.loads(body)
            return entries
    except (OSError, ValueError):
        pass
    return {}


def write(path: Path, entries: dict[str, Any]) -> None:
    """Replace the cache. A read-only dataset has none."""
    body = json.dumps(entries, separators=(",", ":")).encode()
    try:
        durable.write_bytes(path / NAME, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    except OSError:
        return
