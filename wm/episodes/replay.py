"""A replay: the newest steps of a few environments that are played side by side, in memory and on disk.

In memory it is a ring of fixed arrays, touched at once, so that filling it costs nothing later. A step is stored as it
arrives: a frame, the action that led to it and the reward that came with it. On disk it is a dataset like any other,
written a part at a time behind the play and evicted part by part. A part may end within an episode: the piece is then
neither terminated nor truncated, and the next piece has the same seed and begins with the frame this one ends with.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.artifacts import durable
from wm.episodes.dataset import Dataset, Part, committed_parts
from wm.episodes.parts import STAGING, PartBuilder
from wm.episodes.schema import Episode


@dataclass(frozen=True)
class Steps:
    """(B, T) steps in memory of their own; `frames` (B, T, H, W, C * stack) have the newest frame last."""

    frames: NDArray[np.uint8]
    actions: NDArray[np.float32]
    rewards: NDArray[np.float32]
    first: NDArray[np.bool_]
    terminal: NDArray[np.bool_]


class Ring:
    """The newest steps of `lanes` environments, `capacity` in all.

    `first` marks an episode's first frame, `terminal` the frame at which one terminated, `ages` how many steps of the
    episode came before, `seeds` which episode it is.
    """

    def __init__(self, lanes: int, capacity: int, frame: tuple[int, int, int], space: ActionSpace) -> None:
        self.lanes, self.rows, self.space = lanes, capacity // lanes, space
        shape = (lanes, self.rows)
        self.columns: dict[str, NDArray[Any]] = {
            "frames": np.empty((*shape, *frame), np.uint8),
            "actions": np.empty((*shape, *space.column(1).shape[1:]), space.column(1).dtype),
            "rewards": np.empty(shape, np.float32),
            "first": np.empty(shape, np.bool_),
            "terminal": np.empty(shape, np.bool_),
            "ages": np.empty(shape, np.uint32),
            "seeds": np.empty(shape, np.int64),
        }
        for column in self.columns.values():
            column.fill(0)
        self.heads = np.zeros(lanes, np.int64)  # where the next step goes
        self.lengths = np.zeros(lanes, np.int64)
        self._scratch = np.empty(0, np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, full or not."""
        return sum(column.nbytes for column in self.columns.values())

    def __len__(self) -> int:
        return int(self.lengths.sum())

    def add(self, lane: int, frame: NDArray[np.uint8], action: Any, reward: float, terminal: bool) -> None:
        """The step that follows in a lane."""
        before = (self.heads[lane] - 1) % self.rows
        age, seed = self.columns["ages"][lane, before] + 1, self.columns["seeds"][lane, before]
        self._put(lane, frame, action, reward, False, terminal, age, seed)

    def begin(self, lane: int, frame: NDArray[np.uint8], seed: int) -> None:
        """An episode's first frame."""
        self._put(lane, frame, 0, 0.0, True, False, 0, seed)

    def _put(self, lane: int, *values: Any) -> None:
        place = self.heads[lane]
        for column, value in zip(self.columns.values(), values, strict=True):
            column[lane, place] = value
        self.heads[lane] = (place + 1) % self.rows
        self.lengths[lane] = min(self.lengths[lane] + 1, self.rows)

    def window(self, lane: int, count: int) -> dict[str, NDArray[Any]]:
        """Copies of a lane's newest `count` steps, oldest first."""
        places = (self.heads[lane] - count + np.arange(count)) % self.rows
        return {name: column[lane, places] for name, column in self.columns.items()}

    def starts(self, steps: int) -> NDArray[np.int64]:
        """How many windows of so many steps each lane holds."""
        return np.maximum(self.lengths - steps + 1, 0)

    def sample(
        self, count: int, steps: int, random: np.random.Generator, stack: int = 1, out: NDArray[np.uint8] | None = None
    ) -> Steps:
        """`count` windows of `steps`, every start alike; a window may go on into the next episode. `out` (B, T, H, W,
        C * stack) takes the frames."""
        room = np.cumsum(self.starts(steps))
        drawn = random.integers(0, room[-1], count)
        lanes = np.searchsorted(room, drawn, side="right")
        offsets = drawn - np.concatenate([[0], room])[lanes]
        oldest = self.heads[lanes] - self.lengths[lanes]
        since = offsets[:, None] + np.arange(steps)  # steps since the oldest
        places = (lanes * self.rows)[:, None] + (oldest[:, None] + since) % self.rows
        found = {name: column.reshape(-1, *column.shape[2:])[places] for name, column in self._small()}
        frames = self._frames(lanes, oldest, since, np.minimum(found["ages"], since), stack, out)
        encoded = self.space.encode(found["actions"])
        return Steps(frames, encoded, found["rewards"], found["first"], found["terminal"])

    def _small(self) -> list[tuple[str, NDArray[Any]]]:
        return [(name, column) for name, column in self.columns.items() if name not in ("frames", "seeds")]

    def _frames(
        self,
        lanes: NDArray[np.int64],
        oldest: NDArray[np.int64],
        since: NDArray[np.int64],
        back: NDArray[np.int64],
        stack: int,
        out: NDArray[np.uint8] | None,
    ) -> NDArray[np.uint8]:
        """Stacks of frames; one that would reach beyond its episode's first frame, or the oldest, repeats that one."""
        source = self.columns["frames"].reshape(-1, *self.columns["frames"].shape[2:])
        shape = (*since.shape, *source.shape[1:-1], source.shape[-1] * stack)
        out = np.empty(shape, np.uint8) if out is None else out
        for number in range(stack):
            behind = np.minimum(stack - 1 - number, back)
            places = (lanes * self.rows)[:, None] + (oldest[:, None] + since - behind) % self.rows
            if stack == 1:
                np.take(source, places, axis=0, out=out, mode="clip")
                break
            planes = slice(number * source.shape[-1], (number + 1) * source.shape[-1])
            if self._scratch.shape != (*since.shape, *source.shape[1:]):
                self._scratch = np.empty((*since.shape, *source.shape[1:]), np.uint8)
            np.take(source, places, axis=0, out=self._scratch, mode="clip")
            out[..., planes] = self._scratch
        return out


class ReplayWriter:
    """Writes a ring's steps behind the play: parts of `part_rows` steps, of which the newest that hold `keep` stay.

    `lanes` says of every piece on disk which environment played it; it belongs into a checkpoint. `allow` is told the
    bytes of every part before it is written, and may raise DiskProblem.
    """

    def __init__(
        self,
        path: Path,
        recipe: dict[str, Any],
        ring: Ring,
        part_rows: int,
        keep: int,
        allow: Callable[[int], None] | None = None,
    ) -> None:
        self.path, self.recipe, self.ring, self.part_rows, self.keep = path, recipe, ring, part_rows, keep
        self._allow = allow
        self.pending = np.zeros(ring.lanes, np.int64)  # steps of each lane that are not on disk
        self.lanes: dict[int, int] = {}
        self.next = 0
        self.held: list[tuple[Path, int, int]] = []  # parts on disk: folder, steps, index of the piece after

    @property
    def due(self) -> bool:
        """Whether a part is full."""
        return int(self.pending.sum()) >= self.part_rows

    def noted(self, lane: int) -> None:
        """The ring has taken a step of this lane."""
        self.pending[lane] += 1

    def commit(self) -> None:
        """Write what is pending as a part."""
        builder, pieces = PartBuilder(self.path, self.recipe, self.next), dict[int, int]()
        for lane in range(self.ring.lanes):
            for piece in self._pieces(lane, builder.last):
                pieces[piece.index] = lane
                builder.add(piece)
        if not pieces:
            return
        rows = int(self.pending.sum())
        folder = builder.commit(self._allow)
        self.lanes |= pieces
        self.next = builder.last
        self.held.append((folder, rows, self.next))
        self.pending[:] = 0

    def _pieces(self, lane: int, index: int) -> list[Episode]:
        """A lane's pending steps as pieces of episodes, the first one with the frame the piece before ended with."""
        count = int(self.pending[lane])
        if not count:
            return []
        before = min(count + 1, int(self.ring.lengths[lane]))
        steps = self.ring.window(lane, before)
        begin = 0 if before == count or not steps["first"][before - count] else 1
        cuts = [begin, *(np.flatnonzero(steps["first"][begin + 1 :]) + begin + 1), before]
        found: list[Episode] = []
        for start, end in pairwise(cuts):
            over = end < before
            terminated = bool(steps["terminal"][end - 1])
            found.append(
                Episode(
                    index=index + len(found),
                    seed=int(steps["seeds"][start]),
                    frames=steps["frames"][start:end],
                    actions=_shifted(steps["actions"][start:end]),
                    rewards=_shifted(steps["rewards"][start:end]),
                    labels=np.zeros((end - start, 0), np.float32),
                    terminated=terminated,
                    truncated=over and not terminated,
                )
            )
        return found

    def evict(self) -> None:
        """Remove the oldest parts that nobody needs any more; call it when a checkpoint that does without is safe."""
        while len(self.held) > 1 and sum(rows for _, rows, _ in self.held[1:]) >= self.keep:
            folder, _, last = self.held.pop(0)
            durable.remove_folder(folder)
            for index in [index for index in self.lanes if index < last]:
                del self.lanes[index]

    def restore(self, upto: int, lanes: Mapping[int, int]) -> None:
        """Fill the ring from the pieces before `upto`, and remove what was written after. Every step is read once. A
        replay that is gone leaves the ring empty."""
        self.next = upto
        if not self.path.exists():
            return
        shutil.rmtree(self.path / STAGING, ignore_errors=True)
        durable.sweep(self.path)
        for part in committed_parts(self.path):
            if part.first >= upto:
                durable.remove_folder(part.folder)
        dataset = Dataset.open(self.path)
        self.lanes, self.held = {int(index): lane for index, lane in lanes.items()}, []
        for part in dataset.parts:
            self.held.append((part.folder, fill(self.ring, dataset, part, self.lanes), part.last))


def fill(ring: Ring, dataset: Dataset, part: Part, lanes: Mapping[int, int]) -> int:
    """Add a part's steps to the ring, each piece to its lane (0 if nothing is known); returns how many there were. A
    piece that goes on with an episode brings no step with its first frame."""
    added = 0
    for episode in dataset.episodes_of(part):
        lane = lanes.get(episode.index, 0)
        place = (ring.heads[lane] - 1) % ring.rows
        goes_on = ring.lengths[lane] > 0 and ring.columns["seeds"][lane, place] == episode.seed
        if not goes_on:
            ring.begin(lane, episode.frames[0], episode.seed)
            added += 1
        for row in range(1, episode.rows):
            ended = episode.terminated and row == episode.rows - 1
            ring.add(lane, episode.frames[row], episode.actions[row - 1], float(episode.rewards[row - 1]), ended)
            added += 1
    return added


def _shifted(arriving: NDArray[Any]) -> NDArray[Any]:
    """From what led to a row to what follows it; the last row's is zero."""
    return np.concatenate([arriving[1:], np.zeros_like(arriving[:1])])
