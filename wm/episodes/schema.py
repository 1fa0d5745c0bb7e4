"""What an episode is, on disk and in memory.

Time alignment, obeyed everywhere: an episode of T actions has T + 1 rows. Row t holds `frames[t]`, then `actions[t]`
taken on that observation, and `rewards[t]`, its consequence. The last row holds the final frame; its action and reward
are zero and never used. `terminated` and `truncated` say how the episode ended, in gymnasium's meaning.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.episodes.shards import ArraySpec

# Raised when datasets of the version before cannot be read. 2 has one shard file for each array.
FORMAT = 2
CHUNK_ROWS = 64  # the unit of reading: 790 kB of decoded 64 x 64 RGB
PACK_LEVEL = 1  # of zstd, for frames on their way from a worker to the writer
PART_ROWS = 8192  # bounds a writer's memory, and the work that a kill can lose
BLOCK_EPISODES = 64  # the same for short episodes. It decides which frames V's batches have, so it never changes
TABLE_COLUMNS = ("index", "seed", "ends", "terminated", "truncated", "return")
STEPS = "steps"  # a further column where actions are repeated: the last one may end the episode before its last repeat
# Six digits sort as text; a replay counts further.
_PART = re.compile(r"part-([0-9]{6,9})-([0-9]{6,9})")


@dataclass(frozen=True)
class Episode:
    """One episode. Arrays have T + 1 rows; `labels` has a column per label name (none: width 0). The environment took
    `env_steps` steps (0: one for each action)."""

    index: int
    seed: int
    frames: NDArray[np.uint8]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    labels: NDArray[np.float32]
    terminated: bool
    truncated: bool
    env_steps: int = 0

    @property
    def rows(self) -> int:
        """T + 1."""
        return len(self.frames)

    def pack(self) -> "PackedEpisode":
        """The same with compressed frames, which are small to send between processes."""
        return PackedEpisode(
            index=self.index,
            seed=self.seed,
            packed=zstandard.ZstdCompressor(level=PACK_LEVEL).compress(self.frames.data),
            shape=self.frames.shape,
            actions=self.actions,
            rewards=self.rewards,
            labels=self.labels,
            terminated=self.terminated,
            truncated=self.truncated,
            env_steps=self.env_steps,
        )


@dataclass(frozen=True)
class PackedEpisode:
    """An episode whose frames, (T + 1, H, W, C) = `shape`, are the zstd bytes `packed` (Pong: 11 MB -> 31 kB)."""

    index: int
    seed: int
    packed: bytes
    shape: tuple[int, ...]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    labels: NDArray[np.float32]
    terminated: bool
    truncated: bool
    env_steps: int = 0

    @property
    def rows(self) -> int:
        """T + 1."""
        return self.shape[0]

    @property
    def steps(self) -> int:
        """Of the environment; without repeated actions T."""
        return self.env_steps or self.rows - 1

    def open_frames(self) -> zstandard.ZstdDecompressionReader:
        """A stream of the frames' bytes. A `readinto` fills its buffer while bytes remain."""
        return zstandard.ZstdDecompressor().stream_reader(self.packed)

    def unpack(self) -> Episode:
        """The episode with its frames decoded."""
        frames = np.empty(self.shape, np.uint8)
        self.open_frames().readinto(frames.data)
        return Episode(
            index=self.index,
            seed=self.seed,
            frames=frames,
            actions=self.actions,
            rewards=self.rewards,
            labels=self.labels,
            terminated=self.terminated,
            truncated=self.truncated,
            env_steps=self.env_steps,
        )


class FramePacker:
    """Packs the frames of an episode as they come, in the memory of one chunk. Kept until its end, those of a Pong
    episode took 12 MB twice, and 16 us a frame instead of 8, most of it page faults."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=PACK_LEVEL).compressobj()
        self._packed: list[bytes] = []
        self._block = np.empty((0, 0, 0, 0), np.uint8)
        self._filled = self._rows = 0

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Append the next frame, (H, W, C) as all before it."""
        if not self._rows:
            self._block = np.empty((CHUNK_ROWS, *frame.shape), np.uint8)
        self._block[self._filled] = frame
        self._filled, self._rows = self._filled + 1, self._rows + 1
        if self._filled == CHUNK_ROWS:
            self._pack_block()

    def finish(self) -> tuple[bytes, tuple[int, ...]]:
        """`packed` and `shape` of the PackedEpisode. Nothing can be added any more."""
        self._pack_block()
        self._packed.append(self._compressor.flush())
        return b"".join(self._packed), (self._rows, *self._block.shape[1:])

    def _pack_block(self) -> None:
        self._packed.append(self._compressor.compress(self._block[: self._filled].data))
        self._filled = 0


def action_repeat(recipe: dict[str, Any]) -> int:
    """Environment steps for which an action of a dataset was repeated."""
    return int(recipe["env"].get("action_repeat", 1))


def unit_of(recipe: dict[str, Any]) -> str:
    """What a dataset of this recipe holds: episodes, or pieces of them, as a Dreamer's replay and what is edited from
    one."""
    return "piece" if recipe.get("evicts") or recipe.get("origin", {}).get("pieces") else "episode"


def describe_origin(recipe: dict[str, Any]) -> str:
    """Where the episodes of a dataset are from, if they were not collected; empty if they were."""
    origin = recipe.get("origin")
    if not origin:
        return ""
    if origin["operation"] == "import":
        return f"imported, digest {origin.get('files', '')[:8]}"
    sources = ", ".join(fingerprint[:8] for fingerprint in origin.get("datasets", []))
    if ranges := origin.get("episodes"):
        listed = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
        return f"episodes {listed} of {sources}"
    if digest := origin.get("digest"):
        return f"episodes of digest {digest[:8]} of {sources}"
    mixed = "".join(f"; {text}" for text in origin.get("mixed", []))
    return f"{sources} merged{mixed}"


def frame_shape(recipe: dict[str, Any]) -> tuple[int, int, int]:
    """(size, size, channels) of a dataset's frames."""
    # The recipe's size may be text in a dataset that was edited by hand; the schema has checked its range.
    size = int(recipe["env"]["size"])
    return size, size, 1 if recipe["env"]["gray"] else 3


def zstd_level(recipe: dict[str, Any]) -> int:
    """Compression level of the frames. Level 5 makes CarRacing 9 % smaller than level 3, and decodes a little faster.
    Frames of flat colors it makes 2 to 4 % smaller, in four to six times the time; Atari's decode at half the speed.
    docs/research/LOG.md, 2026-11-26, has the table."""
    return 5 if str(recipe.get("env_id", "")).startswith("CarRacing") else 3


def array_specs(recipe: dict[str, Any], rows: int) -> dict[str, ArraySpec]:
    """The arrays of a part of `rows` rows. Small columns are one chunk; `labels` only for labelled environments."""
    space = ActionSpace.from_json(recipe["action_space"])
    actions = space.column(0)
    specs = {
        "frames": ArraySpec((rows, *frame_shape(recipe)), "uint8", CHUNK_ROWS, zstd_level(recipe)),
        "actions": ArraySpec((rows, *actions.shape[1:]), actions.dtype.name, rows),
        "rewards": ArraySpec((rows,), "float32", rows),
    }
    if recipe["labels"]:
        specs["labels"] = ArraySpec((rows, len(recipe["labels"])), "float32", rows)
    return specs


def round_labels(labels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Labels as they are stored: eleven significant bits, 1/2048 of the value, more than a linear probe resolves. The
    noise in the other bits does not compress (LunarLander: 7 of 178 bytes a frame)."""
    # The bits are rounded as integers: adding half of the last kept bit and cutting the rest rounds to nearest.
    bits = np.ascontiguousarray(labels, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(labels), rounded.view(np.float32), labels)


def part_is_full(last: int, rows: int) -> bool:
    """Whether a part of so many rows, whose episodes end with last-1, is full. A function of the episodes alone: which
    of them share a part does not depend on interruptions or on the number of workers."""
    return rows >= PART_ROWS or last % BLOCK_EPISODES == 0


def part_name(first: int, last: int) -> str:
    """`part-000048-000056` has episodes 48 to 55."""
    return f"part-{first:06d}-{last:06d}"


SUFFIX = ".zarr"  # of a dataset's folder, unless --data names another


def part_range(name: str) -> tuple[int, int] | None:
    """(first, last) of a part's name; None for any other name."""
    match = _PART.fullmatch(name)
    if match is None or int(match[1]) >= int(match[2]):
        return None
    return int(match[1]), int(match[2])
