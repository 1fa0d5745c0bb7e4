"""The committed parts of a dataset, and the gaps between them.

A part exists when its manifest agrees. Of parts with the same first episode, the longest supersedes the others. A gap
is an error unless its episodes are in quarantine. Then the other episodes are used, and the fingerprint depends on
the gaps.
"""

import hashlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.artifacts import durable, json_reader, links, manifest
from wm.artifacts.json_reader import COUNT, FLAG, INTEGER, NUMBER, TABLE, list_of, table
from wm.episodes import index
from wm.episodes import mirror as mirrors
from wm.episodes.parts import KIND as PART
from wm.episodes.schema import STEPS, TABLE_COLUMNS, part_range
from wm.episodes.shards import METADATA
from wm.errors import BadData, MissingInput
from wm.stats import LARGEST_REWARD

QUARANTINE = ".quarantine"
MAX_ROWS = 1 << 22  # of a part. Real parts have about 10,000; a forged table must not allocate all memory
Range = tuple[int, int]
_COLUMNS = {"index": COUNT, "seed": INTEGER, "ends": COUNT, "terminated": FLAG, "truncated": FLAG, "return": NUMBER}
_TABLE = table({name: list_of(_COLUMNS[name]) for name in TABLE_COLUMNS}, {STEPS: list_of(COUNT)})
_METADATA = table({"attributes": table({"episodes": _TABLE, "recipe": TABLE}, others=json_reader.ANYTHING)},
                  others=json_reader.ANYTHING)  # fmt: skip
_LISTED = table({"files": table({METADATA: table({"sha256": json_reader.TEXT}, others=json_reader.ANYTHING)},
                                others=json_reader.ANYTHING)}, others=json_reader.ANYTHING)  # fmt: skip


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


def committed_parts(path: Path, recipe: dict[str, Any] | None = None) -> list[Part]:
    """The parts in the order of their episodes, without superseded ones. Updates the dataset's index. Raises BadData
    for a part of another recipe than the dataset's, if that is given."""
    refuse_links(path)
    cache = index.read(path)
    by_first: dict[int, Part] = {}
    entries: dict[str, bytes] = {}
    way_out = f"run `wm verify {shlex.quote(str(path))} --repair`"
    for name in _names(path):
        if (episodes := part_range(name)) is None:
            continue
        folder = path / name
        data = cache.get(name, b"")
        try:
            if hashlib.sha256(data).hexdigest() != _listed_digest(folder, way_out):
                data = _read_metadata(folder)
        except (BadData, MissingInput, FileNotFoundError):
            # A writer replaces a short part by a longer one while others read; what still has the name is damaged.
            if os.path.lexists(folder):
                raise
            return committed_parts(path, recipe)  # a writer has just replaced it by a longer one
        by_first[episodes[0]] = Part(folder, *episodes, _parse_table(folder, data, recipe))
        entries[name] = data
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
        # No folder yet is a dataset without parts; one that may not be read is an error.
        return []


def refuse_links(path: Path) -> None:
    """Raise BadData for a link in the folder of a dataset. Readers of a part look for links in it: a dataset may have
    ten thousand files."""
    for link in links.directly_in(path):
        links.refuse(link)


def _listed_digest(folder: Path, way_out: str) -> str:
    """The digest of a part's metadata by its manifest. Of 10,000 episodes there are 313, so paths here are text."""
    path = os.path.join(folder, manifest.NAME)
    try:
        listed = json_reader.read(path, _LISTED, way_out)
    except BadData:
        if os.path.lexists(path):
            raise
        raise BadData(f"{folder} has no manifest; {way_out}.") from None
    return str(listed["files"][METADATA]["sha256"])


def read_table(folder: Path, recipe: dict[str, Any] | None = None) -> dict[str, list[Any]]:
    """The per-episode table of a part, checked against the manifest, for its types and for plausible values, and for
    the dataset's recipe, if that is given."""
    return _parse_table(folder, _read_metadata(folder), recipe)


def _read_metadata(folder: Path) -> bytes:
    """The bytes of a part's metadata, checked against the manifest. The arrays of a mirrored part may be elsewhere."""
    listed = manifest.read(folder, PART, only=None if mirrors.of(folder.parent) is None else METADATA)
    if listed.get("name") != folder.name or part_range(folder.name) is None:
        raise BadData(f"{folder} was {listed.get('name')}; parts must not be renamed.")
    path = folder / METADATA
    entry = listed["files"].get(METADATA)
    if entry is None or entry["size"] > json_reader.MAX_BYTES:
        raise BadData(f"{folder} has no {METADATA} of at most {json_reader.MAX_BYTES} bytes; remove {folder}.")
    data = durable.read_bytes(path)
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        way_out = f"run `wm verify {shlex.quote(str(folder.parent))} --repair`"
        raise BadData(f"{path} does not match its checksum; {way_out}.")
    return data


def _parse_table(folder: Path, data: bytes, recipe: dict[str, Any] | None) -> dict[str, list[Any]]:
    """The table in a part's metadata. Raises BadData for a column of another type, for values that cannot be, and for a
    part of another recipe."""
    path = os.path.join(folder, METADATA)
    metadata = json_reader.parse(data, path, _METADATA, f"remove {folder}")
    if recipe is not None and (own := metadata["attributes"]["recipe"]) != recipe:
        # 40 characters of a forged key, so that the message stays a line.
        name = next((key[:40] for key in sorted(own | recipe) if own.get(key) != recipe.get(key)), "recipe")
        raise BadData(f"{folder} is a part of another dataset: its {name} differs; move it back, or remove it.")
    columns: dict[str, list[Any]] = metadata["attributes"]["episodes"]
    first, last = part_range(folder.name) or (0, 0)
    ends = [0, *columns["ends"]]
    if (
        any(len(column) != last - first for column in columns.values())
        or columns["index"] != list(range(first, last))
        or ends != sorted(set(ends))
        # The last end bounds all others, for they rise.
        or ends[-1] > MAX_ROWS
    ):
        raise BadData(f"{path} has no valid table of episodes {first} to {last - 1}; remove {folder}.")
    return columns


def longer_part(part: Part, recipe: dict[str, Any]) -> Part | None:
    """The longest part here that begins with the episodes of `part`, which is here no more: a writer replaces a short
    one while others read. None if there is none."""
    parts = [(episodes, name) for name in _names(part.folder.parent) if (episodes := part_range(name)) is not None]
    longer = max((each for each in parts if each[0][0] == part.first), default=None)
    if longer is None:
        return None
    folder = part.folder.parent / longer[1]
    table = read_table(folder, recipe)
    same = all(table[name][: part.last - part.first] == column for name, column in part.table.items() if name in table)
    return Part(folder, *longer[0], table) if same else None


def require_values(folder: Path, name: str, values: NDArray[Any]) -> None:
    """Raise BadData for rewards or labels of a part that cannot be, or from which sums of 32 bits would not be finite.
    A label is NaN where its object is absent."""
    if name not in ("rewards", "labels"):
        return
    fits = np.abs(values) <= LARGEST_REWARD
    if name == "labels":
        fits |= np.isnan(values)
    if not fits.all():
        raise BadData(
            f"{folder / name} has {values[~fits][0]}; expected finite numbers of at most {LARGEST_REWARD:g} in size, "
            f"so run `wm verify {shlex.quote(str(folder.parent))} --repair`."
        )


def gaps(parts: Sequence[Part]) -> list[Range]:
    """Ranges of episodes that are missing before or between the parts."""
    ends = [0, *(part.last for part in parts)]
    return [(end, part.first) for end, part in zip(ends, parts, strict=False) if end < part.first]


def unexplained_gaps(path: Path, parts: Sequence[Part], evicts: bool = False) -> list[Range]:
    """Gaps that neither quarantine explains nor, in a replay that `evicts`, the eviction of the oldest episodes."""
    quarantined = sorted(filter(None, (part_range(name.partition(".")[0]) for name in _names(path / QUARANTINE))))
    return [gap for gap in gaps(parts) if not _covers(quarantined, gap) and not (evicts and gap[0] == 0)]


def _covers(ranges: Sequence[Range], gap: Range) -> bool:
    """Whether every episode of a gap is in one of the sorted ranges."""
    reached, end = gap
    for first, last in ranges:
        if first <= reached:
            reached = max(reached, last)
    return reached >= end
