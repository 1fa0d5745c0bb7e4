"""A cache of the parts' metadata, so that opening 10,000 episodes reads one file besides the manifests.

An entry is a line with the part's name and the number of bytes, and the bytes of its metadata. It counts only if its
digest is the one that the part's manifest lists, so a forged cache changes nothing. It can always be rebuilt.
"""

from pathlib import Path

from wm.artifacts import durable
from wm.errors import BadData

NAME = ".index"
MAX_BYTES = 1 << 28  # 10 kB a part, 10,000 parts: a larger file is no cache of ours


def read(path: Path) -> dict[str, bytes]:
    """The cached metadata of the dataset at `path` by part; empty if the cache is missing or damaged."""
    file = path / NAME
    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > MAX_BYTES:
            return {}
        return _parse(durable.read_bytes(file))
    except (OSError, BadData, ValueError):
        # Without a cache the metadata of every part are read; it never fails a command.
        return {}


def _parse(data: bytes) -> dict[str, bytes]:
    """The entries in `data`. Raises ValueError for a line that is none."""
    entries, start = dict[str, bytes](), 0
    while start < len(data):
        end = data.index(b"\n", start)
        name, size = data[start:end].decode().split(" ")
        start, end = end + 1, end + 1 + int(size)
        if end < start:
            raise ValueError(f"{size} bytes")
        entries[name], start = data[start:end], end
    return entries


def write(path: Path, entries: dict[str, bytes]) -> None:
    """Replace the cache. A read-only dataset has none."""
    lines = [f"{name} {len(data)}\n".encode() + data for name, data in entries.items()]
    try:
        durable.write_bytes(path / NAME, b"".join(lines))
    except OSError:
        # On a read-only disk every command reads the parts themselves.
        return
