"""`contents.json`: which artifacts a shared run has, and size and sha256 of every file.

Whoever receives a run reads this list first, so it decides what may arrive: plain names below the artifacts that it
names, as many bytes as it states. The card is for people and is not in the list.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wm.artifacts import manifest
from wm.artifacts.json_reader import COUNT, TEXT, Mismatch, Schema, between, one_of, table, table_of
from wm.artifacts.runs import ARCHIVE, RECIPE_FILE, SCRATCH
from wm.artifacts.workspace import is_reserved
from wm.errors import BadData

NAME, CARD = "contents.json", "README.md"
EPISODES = "episodes.zarr"
# Files that may lie beside those of the list, and never travel: the card is for people, the Hub writes the second one,
# and whoever opens the episodes in place writes their index.
UNLISTED = frozenset({CARD, ".gitattributes", f"{EPISODES}/.index"})
# Raised when other versions cannot read the list; 1 so far.
KIND, FORMAT = "shared run", 1
MAX_FILES = 4000  # a run has about 40, and three for each part of its episodes; the list stays below 1 MB
MAX_BYTES = 200_000_000  # of all files, unless a person allows more; our largest runs have 30 MB
MAX_NAME, MAX_DEPTH = 200, 5  # characters, and folders in each other; ours have 60 and 4
FILE_BYTES = 4096  # that a file takes on disk besides its contents, at most
FURTHER_FILES = 64  # folders, manifests that a pull writes anew, and the lock
WAY_OUT = "ask whoever shared it to push it again"
KINDS = ("vae", "latents", "mdnrnn", "controller", "dreamer", "dream", "evaluation")
# No dot at either end: hidden names, `..`, and what Windows cuts off.
_PIECE = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._+-]*[A-Za-z0-9_])?")
# Names that Windows gives to devices, whatever their ending.
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.I)
# What the stages write into a finished artifact, except snapshots of memory and TensorBoard's events: these hold paths
# and names of the machine.
_FILES = re.compile(
    r"weights\.safetensors|model\.json|manifest\.json|(metrics|generations)\.jsonl|(score|fidelity|temperature)\.json"
    r"|[a-z-]+\.(png|gif)|whitener-\d+\.npy|latents\.zarr/(\w+/)?(zarr\.json|c(\.\d+)*)"
)
_EPISODE_FILES = re.compile(r"(part-\d+-\d+/(\w+/)?)?(zarr\.json|manifest\.json)|part-\d+-\d+/\w+/c(\.\d+)*")


@dataclass(frozen=True)
class File:
    """Bytes of a file and their sha256."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Contents:
    """A shared run: its environment, its `agent`'s name, the kind of each artifact by name, how many of the episodes
    that V was trained on came along, and every file."""

    env: str
    agent: str
    artifacts: Mapping[str, str]
    episodes: int
    trained_on: int
    files: Mapping[str, File]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    @property
    def names(self) -> list[str]:
        """The artifacts in the order in which they are made."""
        return sorted(self.artifacts, key=lambda name: (KINDS.index(self.artifacts[name]), name))

    @property
    def can_dream(self) -> bool:
        """Whether there is what `wm dream` and `wm play` need besides V and M: an episode to start in."""
        return self.episodes > 0

    @property
    def episodes_along(self) -> str:
        """How many of V's episodes there are, and what is missed without the rest."""
        along = f"{self.episodes} of the {self.trained_on} episodes that V was trained on came along."
        if self.episodes >= self.trained_on:
            return along
        if self.can_dream:
            return f"{along} Who trains V or M again trains on these alone."
        return f"{along} wm dream and wm play need one."

    def below(self, folder: str) -> dict[str, File]:
        """The files of an artifact or of the episodes, named from there."""
        start = f"{folder}/"
        return {name.removeprefix(start): file for name, file in self.files.items() if name.startswith(start)}

    def as_bytes(self) -> bytes:
        """The file. Equal contents have equal bytes."""
        files = {name: {"size": file.size, "sha256": file.sha256} for name, file in self.files.items()}
        body = {"kind": KIND, "format": FORMAT, "env": self.env, "agent": self.agent, "files": files}
        counts = {"episodes": self.episodes, "trained_on": self.trained_on}
        return manifest.sealed({**body, **counts, "artifacts": dict(self.artifacts)})


def travels(name: str) -> bool:
    """Whether a file of an artifact may be shared."""
    return _FILES.fullmatch(name) is not None


def space_of(size: int, files: int) -> tuple[int, int]:
    """The bytes and the inodes on a disk, at most, of a run with so many bytes in so many files."""
    return size + FILE_BYTES * files, files + FURTHER_FILES


def parse(data: bytes, source: str) -> Contents:
    """The contents in a file's bytes. Raises BadData for anything that cannot be a shared run, naming `source`."""
    body = manifest.parse_sealed(data, source, _SCHEMA, WAY_OUT)
    contents = Contents(
        body["env"],
        body["agent"],
        body["artifacts"],
        body["episodes"],
        body["trained_on"],
        {name: File(**entry) for name, entry in body["files"].items()},
    )
    _require_artifacts(contents, source)
    _require_files(contents, source)
    return contents


def _digest(value: Any, key: str) -> None:
    if not (isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)):
        raise Mismatch(key, repr(value)[:40], "a sha256")


def _environment(value: Any, key: str) -> None:
    TEXT(value, key)
    # As long as the longest name of a file may be, and one line.
    if not (0 < len(value) <= MAX_NAME and value.isprintable()):
        raise Mismatch(key, repr(value)[:40], "the name of an environment")


_SCHEMA: Schema = table(
    {
        "kind": one_of(KIND),
        "format": between(FORMAT, FORMAT),
        "env": _environment,
        "agent": TEXT,
        "artifacts": table_of(one_of(*KINDS)),
        "episodes": COUNT,
        "trained_on": COUNT,
        "files": table_of(table({"size": COUNT, "sha256": _digest})),
    }
)


def has_its_name(name: str, kind: str) -> bool:
    """Whether an artifact of this kind may have this name in a run."""
    first, _, second = name.partition("/")
    if not _is_plain(first) or (second and not _is_plain(second)):
        return False
    match kind:
        case "evaluation":
            return first == "evaluation" and bool(second)
        case "latents" | "dream":
            return name == kind or name.startswith(f"{kind}-")
        case "controller" | "dreamer":
            return not second and (name == kind or not is_reserved(name, kind))
    return name == kind


def _is_plain(piece: str) -> bool:
    return _PIECE.fullmatch(piece) is not None and _DEVICE.fullmatch(piece) is None


def _require_artifacts(contents: Contents, source: str) -> None:
    for name, kind in contents.artifacts.items():
        if not has_its_name(name, kind):
            raise BadData(f"{source} has a {kind} called {name[:80]!r}, which is not a name for one; {WAY_OUT}.")
    needed = {"dreamer": set[str](), "controller": {"vae", "mdnrnn"}}
    agent = contents.artifacts.get(contents.agent, "")
    if agent not in needed or not needed[agent] <= contents.artifacts.keys():
        raise BadData(f"{source} has no agent {contents.agent[:80]!r} with what it needs to play; {WAY_OUT}.")


def _require_files(contents: Contents, source: str) -> None:
    """Raise BadData unless every file is one that an artifact or a dataset has, under a name that is one file on every
    system."""
    if len(contents.files) > MAX_FILES:
        raise BadData(f"{source} lists {len(contents.files)} files; expected at most {MAX_FILES}, so {WAY_OUT}.")
    # The longest name first, because an artifact may lie within another one's folder.
    owners = sorted(contents.artifacts, key=len, reverse=True)
    for name in contents.files:
        owner = next((owner for owner in owners if name.startswith(f"{owner}/")), "")
        if not is_safe(name) or not _is_known(contents, owner, name):
            raise BadData(f"{source} lists {name[:80]!r}, which is no file of a run; {WAY_OUT}.")
    if len({name.casefold() for name in contents.files}) < len(contents.files):
        raise BadData(f"{source} lists names that differ in capitals only; {WAY_OUT}.")


def _is_known(contents: Contents, owner: str, name: str) -> bool:
    if owner:
        return travels(name.removeprefix(f"{owner}/"))
    folder, _, file = name.partition("/")
    return folder == EPISODES and contents.episodes > 0 and _EPISODE_FILES.fullmatch(file) is not None


def is_safe(name: str) -> bool:
    """Whether a relative name stays below its folder, and means the same on every system."""
    pieces = name.split("/")
    reserved = {ARCHIVE, SCRATCH, RECIPE_FILE} & set(pieces)
    return len(name) <= MAX_NAME and len(pieces) <= MAX_DEPTH and all(map(_is_plain, pieces)) and not reserved
