"""A cache of the parts' metadata, so that opening 10,000 episodes reads one file besides the manifests.

An entry is the text of a part's metadata. It counts only if its digest is the one that the part's manifest lists, so a
forged cache changes nothing. It can always be rebuilt.
"""

import json
from pathlib import Path

from wm.artifacts import durable, json_reader
from wm.errors import BadData

NAME = ".index.json"
MAX_BYTES = 1 << 28  # 10 kB a part, 10,000 parts: a larger file is no cache of ours
_ENTRIES = json_reader.table_of(json_reader.TEXT)


def read(path: Path) -> dict[str, str]:
    """The cached metadata of the dataset at `path` by part; empty if the cache is missing or damaged."""
    file = path / NAME
    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > MAX_BYTES:
            return {}
        entries: dict[str, str] = json_reader.parse(durable.read_bytes(file), str(file), _ENTRIES)
    except (OSError, BadData):
        return {}
    return entries


def write(path: Path, entries: dict[str, str]) -> None:
    """Replace the cache. A read-only dataset has none."""
    try:
        durable.write_bytes(path / NAME, json.dumps(entries, separators=(",", ":")).encode())
    except OSError:
        return
