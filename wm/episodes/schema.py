"""What an episode is, on disk and in memory.

Time alignment, obeyed everywhere: an episode of T actions has T + 1 rows. Row t holds `frames[t]`, then `actions[t]`
taken after seeing it, and `rewards[t]`, its consequence. The last row holds the final frame; its action and reward
are zero and never used. `terminated` and `truncated` say how the episode ended, in gymnasium's meaning.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

FORMAT = 1
CHUNK_ROWS = 64
PART_ROWS = 8192
BLOCK_EPISODES = 64
TABLE_COLUMNS = ("index", "seed", "ends", "terminated", "truncated", "return")


@dataclass(frozen=True)
class Episode:
    """One episode. Arrays have T + 1 rows; `labels` has a column per label name (none: width 0)."""

    index: int
    seed: int
    frames: NDArray[np.uint8]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    labels: NDArray[np.float32]
    terminated: bool
    truncated: bool

    @property
    def rows(self) -> int:
        """T + 1."""
        return len(self.frames)

    def pack(self) -> "PackedEpisode":
        """The same with compressed frames: what travels between processes stays small."""
        shape = self.frames.shape
        return PackedEpisode(self, Zstd(level=1).encode(self.frames), (shape[0], shape[1], shape[2], shape[3]))


class PackedEpisode:
    """An episode whose frames are held as zstd bytes (Pong: 11 MB -> 31 kB)."""

    def __init__(self, episode: Episode, packed: bytes, shape: tuple[int, int, int, int]) -> None:
        self.index, self.seed, self.rows = episode.index, episode.seed, episode.rows
        self.rewards = episode.rewards
        self._rest = (episode.actions, episode.rewards, episode.labels, episode.terminated, episode.truncated)
        self.packed, self._shape = packed, shape

    def unpack(self) -> Episode:
        """The episode again, with frames of its own."""
        frames = np.empty(self._shape, np.uint8)
        Zstd().decode(self.packed, out=frames)
        actions, rewards, labels, terminated, truncated = self._rest
        return Episode(self.index, self.seed, frames, actions, rewards, labels, terminated, truncated)


def part_is_full(first: int, last: int, rows: int) -> bool:
    """Whether a part holding episodes first..last-1 closes. A function of the episodes alone, so that which episodes
    share a part does not depend on when or by how many workers they were collected."""
    return rows >= PART_ROWS or last % BLOCK_EPISODES == 0


def part_name(first: int, last: int) -> str:
    """`part-000048-000056` holds episodes 48 to 55."""
    return f"part-{first:06d}-{last:06d}"
