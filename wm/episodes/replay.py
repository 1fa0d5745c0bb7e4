"""A replay: the newest steps of a few environments, in memory and on disk.

In memory it is a ring buffer of fixed arrays, written once at construction, so that filling it takes no more memory. A
step is stored as it arrives: a frame, the action that led to it and the reward that came with it. On disk it is a
dataset like any other, written a part at a time and evicted part by part. A part may end within an episode: that piece
is neither terminated nor truncated, and the next piece has the same seed and begins with the frame the previous one
ended with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.artifacts import durable, manifest
from wm.episodes.committed_parts import Part, committed_parts
from wm.episodes.dataset import Dataset
from wm.episodes.parts import KIND as PART
from wm.episodes.parts import STAGING, PartBuilder
from wm.episodes.schema import Episode
from wm.errors import BadData

STEP_BYTES = 40  # at most, of a step without its frame: action, reward, flags and seed


@dataclass(frozen=True)
class ReplayBatch:
    """(B, T) steps that own their memory. `frames` are (B, T, H, W, C); `first` marks an episode's first frame,
    `terminal` the frame at which one terminated."""

    frames: NDArray[np.uint8]
    actions: NDArray[np.float32]
    rewards: NDArray[np.float32]
    first: NDArray[np.bool_]
    terminal: NDArray[np.bool_]


class ReplayBuffer:
    """The newest steps of `num_envs` environments, `capacity` in all; `seeds` name the episode of each step."""

    def __init__(self, num_envs: int, capacity: int, frame: tuple[int, int, int], space: ActionSpace) -> None:
        self.num_envs, self.rows, self.space = num_envs, capacity // num_envs, space
        shape = (num_envs, self.rows)
        self.columns: dict[str, NDArray[Any]] = {
            "frames": np.empty((*shape, *frame), np.uint8),
            "actions": np.empty((*shape, *space.column(1).shape[1:]), space.column(1).dtype),
            "rewards": np.empty(shape, np.float32),
            "first": np.empty(shape, np.bool_),
            "terminal": np.empty(shape, np.bool_),
            "seeds": np.empty(shape, np.int64),
        }
        # Written once: pages that the system gives only when they are first written would look like a leak.
        for column in self.columns.values():
            column.fill(0)
        self.heads = np.zeros(num_envs, np.int64)  # where the next step goes
        self.lengths = np.zeros(num_envs, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, full or not."""
        return sum(column.nbytes for column in self.columns.values())

    def __len__(self) -> int:
        return int(self.lengths.sum())

    def start_episode(self, env_index: int, frame: NDArray[np.uint8], seed: int) -> None:
        """Add an episode's first frame."""
        self._put(env_index, frame, 0, 0.0, True, False, seed)

    def add_step(self, env_index: int, frame: NDArray[np.uint8], action: Any, reward: float, terminal: bool) -> None:
        """Add the next step of an environment's episode."""
        self._put(env_index, frame, action, reward, False, terminal, self.newest_seed(env_index))

    def newest_seed(self, env_index: int) -> Any:
        """The seed of an environment's newest episode."""
        return self.columns["seeds"][env_index, (self.heads[env_index] - 1) % self.rows]

    def _put(self, env_index: int, *values: Any) -> None:
        row = self.heads[env_index]
        for column, value in zip(self.columns.values(), values, strict=True):
            column[env_index, row] = value
        self.heads[env_index] = (row + 1) % self.rows
        self.lengths[env_index] = min(self.lengths[env_index] + 1, self.rows)

    def newest(self, env_index: int, count: int) -> dict[str, NDArray[Any]]:
        """Copies of an environment's newest `count` steps, oldest first."""
        # Modulo the ring's length: the newest steps may lie across its end.
        rows = (self.heads[env_index] - count + np.arange(count)) % self.rows
        return {name: column[env_index, rows] for name, column in self.columns.items()}

    def windows(self, steps: int) -> NDArray[np.int64]:
        """How many windows of this length each environment has."""
        return np.maximum(self.lengths - steps + 1, 0)

    def sample(
        self, count: int, steps: int, random: np.random.Generator, out: NDArray[np.uint8] | None = None
    ) -> ReplayBatch:
        """`count` windows of `steps`, uniform over all; a window may continue into the next episode. `out` (B, T, H, W,
        C) receives the frames."""
        ends = np.cumsum(self.windows(steps))
        # Uniform over windows and not over environments, so that every stored step is as likely as another.
        windows = random.integers(0, ends[-1], count)
        envs = np.searchsorted(ends, windows, side="right")
        offsets = windows - np.concatenate([[0], ends])[envs]
        oldest = self.heads[envs] - self.lengths[envs]
        rows = (oldest[:, None] + offsets[:, None] + np.arange(steps)) % self.rows
        rows += (envs * self.rows)[:, None]
        small = {name: self._flat(name)[rows] for name in ("actions", "rewards", "first", "terminal")}
        actions = self.space.encode(small["actions"])
        return ReplayBatch(self._frames(rows, out), actions, small["rewards"], small["first"], small["terminal"])

    def _flat(self, name: str) -> NDArray[Any]:
        column = self.columns[name]
        return column.reshape(-1, *column.shape[2:])

    def _frames(self, rows: NDArray[np.int64], out: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        """Copies of the frames at flat rows."""
        frames = self._flat("frames")
        return np.take(frames, rows, axis=0, out=out, mode="clip")


class ReplayWriter:
    """Writes the steps of a replay buffer to disk: parts of `part_rows` steps; `evict` keeps the newest `keep_rows`.

    `envs` maps every piece on disk to the environment that played it, and belongs into a checkpoint. `allow` gets the
    bytes of every part before it is written, and may raise DiskProblem.
    """

    def __init__(
        self,
        path: Path,
        recipe: dict[str, Any],
        buffer: ReplayBuffer,
        part_rows: int,
        keep_rows: int,
        allow: Callable[[int], None] | None = None,
    ) -> None:
        self.path, self.recipe, self.buffer = path, recipe, buffer
        self.part_rows, self.keep_rows, self._allow = part_rows, keep_rows, allow
        self.pending = np.zeros(buffer.num_envs, np.int64)  # steps of each environment that are not on disk
        self.envs: dict[int, int] = {}
        self.next_piece = 0
        self.parts: list[tuple[Path, int, int]] = []  # on disk: folder, steps, index of the next part's first piece

    @property
    def part_is_full(self) -> bool:
        """Whether enough steps are pending for a part."""
        return int(self.pending.sum()) >= self.part_rows

    def start_episode(self, env_index: int, frame: NDArray[np.uint8], seed: int) -> None:
        """Add an episode's first frame to the buffer."""
        self.buffer.start_episode(env_index, frame, seed)
        self.pending[env_index] += 1

    def add_step(self, env_index: int, frame: NDArray[np.uint8], action: Any, reward: float, terminal: bool) -> None:
        """Add the next step of an environment's episode to the buffer."""
        self.buffer.add_step(env_index, frame, action, reward, terminal)
        self.pending[env_index] += 1

    def commit(self) -> None:
        """Write the pending steps as a part."""
        builder, envs = PartBuilder(self.path, self.recipe, self.next_piece), dict[int, int]()
        for env_index in range(self.buffer.num_envs):
            for piece in self._pieces(env_index, builder.last):
                envs[piece.index] = env_index
                builder.add(piece.pack())
        if not envs:
            return
        rows = int(self.pending.sum())
        folder = builder.commit(self._allow)
        self.envs |= envs
        self.next_piece = builder.last
        self.parts.append((folder, rows, self.next_piece))
        self.pending[:] = 0

    def _pieces(self, env_index: int, index: int) -> list[Episode]:
        """An environment's pending steps as pieces of episodes. A piece that continues an episode begins with the last
        frame that is on disk."""
        pending = int(self.pending[env_index])
        if not pending:
            return []
        # One frame more than is pending: the last one on disk, from which the piece goes on.
        count = min(pending + 1, int(self.buffer.lengths[env_index]))
        steps = self.buffer.newest(env_index, count)
        begin = 0 if count == pending or not steps["first"][count - pending] else 1
        cuts = [begin, *(np.flatnonzero(steps["first"][begin + 1 :]) + begin + 1), count]
        pieces: list[Episode] = []
        for start, end in pairwise(cuts):
            ended = end < count
            terminated = bool(steps["terminal"][end - 1])
            pieces.append(
                Episode(
                    index=index + len(pieces),
                    seed=int(steps["seeds"][start]),
                    frames=steps["frames"][start:end],
                    actions=_shifted(steps["actions"][start:end]),
                    rewards=_shifted(steps["rewards"][start:end]),
                    labels=np.zeros((end - start, 0), np.float32),
                    terminated=terminated,
                    truncated=ended and not terminated,
                )
            )
        return pieces

    def evict(self) -> None:
        """Remove the oldest parts beyond `keep_rows`; call it after the checkpoint that needs them no more."""
        evicted = self.parts[: self._first_kept]
        del self.parts[: self._first_kept]
        for folder, _, end in evicted:
            durable.remove(folder)
            for index in [index for index in self.envs if index < end]:
                del self.envs[index]

    @property
    def _first_kept(self) -> int:
        """The number of parts that `evict` removes."""
        first = 0
        while first < len(self.parts) - 1 and sum(rows for _, rows, _ in self.parts[first + 1 :]) >= self.keep_rows:
            first += 1
        return first

    def kept_parts(self) -> dict[str, str]:
        """The parts that stay after `evict`, with the digests of their manifests. They belong into a checkpoint."""
        folders = [folder for folder, _, _ in self.parts[self._first_kept :]]
        return {folder.name: manifest.sha256_file(folder / manifest.NAME) for folder in folders}

    def restore(self, next_piece: int, envs: Mapping[int, int], digests: Mapping[str, str] | None = None) -> None:
        """Fill the buffer from the pieces before `next_piece`, and remove later ones. Every step is read once. Without
        a replay on disk the buffer stays empty. Raises BadData if one of the parts with the checkpoint's `digests` was
        changed or is missing."""
        self.next_piece = next_piece
        if not self.path.exists():
            return
        durable.remove(self.path / STAGING)
        durable.sweep(self.path)
        for part in committed_parts(self.path):
            if part.first >= next_piece:
                durable.remove(part.folder)
        dataset = Dataset.open(self.path)
        if digests and dataset.parts:
            self._check_parts({part.folder.name for part in dataset.parts}, digests)
            dataset = Dataset.open(self.path)
        self.envs, self.parts = dict(envs), []
        for part in dataset.parts:
            self.parts.append((part.folder, load_part(self.buffer, dataset, part, self.envs), part.last))

    def _check_parts(self, present: set[str], digests: Mapping[str, str]) -> None:
        """Raise BadData unless every part with a digest is whole, and remove those that a kill kept from eviction."""
        way_out = f"restore it, or remove {self.path} to fill the replay again"
        for name, digest in digests.items():
            folder = self.path / name
            if name not in present or manifest.sha256_file(folder / manifest.NAME) != digest:
                raise BadData(f"{folder} is missing or not the part that the checkpoint names; {way_out}.")
            manifest.verify(folder, PART)
        for name in present - digests.keys():
            durable.remove(self.path / name)


def load_part(buffer: ReplayBuffer, dataset: Dataset, part: Part, envs: Mapping[int, int]) -> int:
    """Add a part's steps to the buffer, each piece to its environment (0 if unknown); returns their number. The first
    frame of a piece that continues an episode is not a step."""
    added = 0
    for episode in dataset.episodes_of(part):
        env_index = envs.get(episode.index, 0)
        if not buffer.lengths[env_index] or buffer.newest_seed(env_index) != episode.seed:
            buffer.start_episode(env_index, episode.frames[0], episode.seed)
            added += 1
        for row in range(1, episode.rows):
            terminal = episode.terminated and row == episode.rows - 1
            reward = float(episode.rewards[row - 1])
            buffer.add_step(env_index, episode.frames[row], episode.actions[row - 1], reward, terminal)
            added += 1
    return added


def _shifted(arriving: NDArray[Any]) -> NDArray[Any]:
    """From what led to a row to what follows it; the last row's is zero."""
    return np.concatenate([arriving[1:], np.zeros_like(arriving[:1])])
