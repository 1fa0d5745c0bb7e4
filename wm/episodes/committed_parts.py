"""The committed parts of a dataset, and the gaps between them.

A part exists when its manifest agrees. Of parts with the same first episode, the longest supersedes the others. A gap
is an error unless its episodes are in quarantine. Then the other episodes are used, and the fingerprint depends on
the gaps.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from wm.artifacts import manifest
from wm.episodes import index
from wm.episodes.parts import KIND as PART
from wm.episodes.schema import TABLE_COLUMNS, part_range
from wm.episodes.shards import METADATA
from wm.errors import BadData

QUARANTINE = ".quarantine"
MAX_ROWS = 1 << 22  # of a part. Real parts have about 10,000; a forged table must not allocate all memory
Range = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """A committed part: its folder, and the table of its episodes first..last-1."""

    folder: Path
    first: int
    last: int
    table: dict[str, list[Any]]

    @property
    def rows(self) -> int:
        """Number of rows, final frames included."""
        return int(self.table["ends"][-1])


def committed_parts(path: Path) -> list[Part]:
    """The parts in the order of their episodes, without superseded ones. Updates the dataset's index."""
    cache = index.read(path)
    by_first: dict[int, Part] = {}
    entries: dict[str, Any] = {}
    for name in _names(path):
        if (episodes := part_range(name)) is None:
            continue
        folder = path / name
        stamp = _stamp(folder)
        entry = cache.get(name)
        if entry is None or entry["stamp"] != stamp:
            entry = {"stamp": stamp, "table": read_table(folder)}
        entries[name] = entry
        by_first[episodes[0]] = Part(folder, *episodes, entry["table"])
    if entries != cache:
        index.write(path, entries)
    parts = [by_first[first] for first in sorted(by_first)]
    for part, following in pairwise(parts):
        if following.first < part.last:
            raise BadData(f"{part.folder} and {following.folder} have the same episodes; remove the wrong one.")
    return parts


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _stamp(folder: Path) -> list[int]:
    if os.path.islink(folder):
        raise BadData(f"{folder} is a link; links inside a dataset are not followed, so replace it by the part.")
    try:
        status = os.stat(os.path.join(folder, manifest.NAME))
    except OSError:
        raise BadData(f"{folder} has no manifest; run `wm verify {folder.parent} --repair`.") from None
    return [status.st_size, status.st_mtime_ns]


def read_table(folder: Path) -> dict[str, list[Any]]:
    """The per-episode table of a part, checked against the manifest and for plausible values."""
    listed = manifest.read(folder, PART)
    episodes = part_range(folder.name)
    if listed.get("name") != folder.name or episodes is None:
        raise BadData(f"{folder} was {listed.get('name')}; parts must not be renamed.")
    path = folder / METADATA
    if manifest.sha256_file(path) != listed["files"][METADATA]["sha256"]:
        raise BadData(f"{path} does not match its checksum; run `wm verify {folder.parent} --repair`.")
    try:
        table: dict[str, list[Any]] = manifest.read_json(path)["attributes"]["episodes"]
        ends = [0, *table["ends"]]
        valid = (
            set(table) == set(TABLE_COLUMNS)
            and all(len(column) == episodes[1] - episodes[0] for column in table.values())
            and table["index"] == list(range(*episodes))
            and all(type(end) is int and start < end <= MAX_ROWS for start, end in pairwise(ends))
        )
    except (KeyError, TypeError):
        valid = False
    if not valid:
        raise BadData(f"{path} has no valid table of episodes {episodes[0]} to {episodes[1] - 1}; remove {folder}.")
    return table


def gaps(parts: Sequence[Part]) -> list[Range]:
    """Ranges of episodes that are missing before or between the parts."""
    ends = [0, *(part.last for part in parts)]
    return [(end, part.first) for end, part in zip(ends, parts, strict=False) if end < part.first]


def unexplained_gaps(path: Path, parts: Sequence[Part], evicts: bool = False) -> list[Range]:
    """Gaps that neither quarantine explains nor, in a replay that `evicts`, the eviction of the oldest episodes."""
    quarantined = {
        episode
        for name in _names(path / QUARANTINE)
        if (episodes := part_range(name.partition(".")[0]))
        for episode in range(*episodes)
    }
    return [
        (first, last)
        for first, last in gaps(parts)
        if not quarantined.issuperset(range(first, last)) and not (evicts and first == 0)
    ]
