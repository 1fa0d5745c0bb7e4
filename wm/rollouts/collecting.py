"""The loop that plays the missing episodes of a dataset and writes them.

Workers send episodes to this process, which writes them. Where many workers play more than one process can write, each
plays and writes a block of episodes, and this process commits their parts. The dataset has the same bytes.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from wm.artifacts.disk import DiskBudget
from wm.episodes.archive import Claim
from wm.episodes.dataset import Dataset
from wm.episodes.schema import BLOCK_EPISODES, PackedEpisode
from wm.episodes.size_estimate import SAMPLE_EPISODES, sample_suffices
from wm.episodes.staged_parts import Place, StagedPart, open_place, write_block
from wm.episodes.writer import Writer
from wm.errors import EnvironmentFault, WorkerFailed
from wm.rollouts.collection import Collection, open_writer, play_episode
from wm.rollouts.workers import Workers, open_workers
from wm.runtime import Progress, Runtime

# Measured for CarRacing (decision 0024); faster games have fewer, and blocks are then a little late.
ONE_WRITER = 50  # workers whose episodes one process can write as fast as they play


def collect_episodes(
    collection: Collection,
    claim: Claim,
    episodes: int,
    budget: DiskBudget,
    runtime: Runtime,
    one_writer: int = ONE_WRITER,
) -> Dataset:
    """Play the missing episodes (at least one) of a claimed dataset and commit them part by part. Returns the dataset.
    `one_writer` is the number of workers for whom one process can write.

    Raises DiskProblem before anything is written, or when the budget is used up; WorkerFailed names the episode that
    cannot be played. Either way the finished episodes before it are committed.
    """
    missing, env = claim.missing(episodes), collection.env.name
    done = episodes - len(missing)
    with ExitStack() as stack:
        workers = stack.enter_context(open_workers(runtime))
        progress = stack.enter_context(runtime.progress(f"collect {env}", episodes, "episodes", done))

        def open_once(sample: Sequence[PackedEpisode]) -> Writer:
            return stack.enter_context(open_writer(claim, sample, len(missing), budget, env))

        collecting = _Collecting(collection, workers, _IndexOrder(missing, open_once), runtime, progress, done)
        blocks = _blocks(claim.dataset.collected if claim.dataset else 0, episodes)
        if not blocks_pay(len(missing), sum(map(len, blocks)), workers.count, one_writer):
            blocks = []
        collecting.play([index for index in missing if not blocks or index < blocks[0].start])
        if blocks:
            collecting.play_blocks(blocks)
    return collecting.order.writer.dataset  # after its last part, which the end of the stack commits


def _blocks(collected: int, episodes: int) -> list[range]:
    """The blocks of episodes of which none is there, the last one cut at `episodes`. What precedes them suffices to
    estimate their size."""
    first = math.ceil((collected + SAMPLE_EPISODES) / BLOCK_EPISODES) * BLOCK_EPISODES
    return [range(begin, min(begin + BLOCK_EPISODES, episodes)) for begin in range(first, episodes, BLOCK_EPISODES)]


def blocks_pay(missing: int, in_blocks: int, workers: int, one_writer: int) -> bool:
    """Whether `missing` episodes are collected sooner if workers write those of them that are in blocks. Times are
    those of an episode: alone, one process is as fast as `one_writer` workers."""
    rounds = math.ceil(math.ceil(in_blocks / BLOCK_EPISODES) / workers)
    before = math.ceil((missing - in_blocks) / min(workers, one_writer))
    return before + rounds * BLOCK_EPISODES < missing / min(workers, one_writer)


class _Collecting:
    """One call of `collect_episodes`; `done` episodes are there."""

    def __init__(
        self,
        collection: Collection,
        workers: Workers,
        order: "_IndexOrder",
        runtime: Runtime,
        progress: Progress,
        done: int,
    ) -> None:
        self.order = order
        self._collection, self._workers, self._runtime, self._progress = collection, workers, runtime, progress
        self._done, self._rows, self._began = done, 0, runtime.clock()

    def play(self, missing: Sequence[int]) -> None:
        """Play these episodes, and write them here. Raises WorkerFailed, which names the episode."""
        try:
            for _, episode in self._workers.map(play_episode, [(self._collection, index) for index in missing]):
                self.order.add(episode)
                self._show(1, episode.rows)
        except WorkerFailed as failed:
            # One episode suffices, because more will not come: what was played is kept.
            self.order.write(smallest_sample=1)
            index = missing[failed.task]
            name = f"episode {index} of {self._collection.env.name} (seed {self._collection.episode_seed(index)})"
            raise WorkerFailed(index, failed.why, name) from None
        except EnvironmentFault:
            self.order.write(smallest_sample=1)
            raise

    def play_blocks(self, blocks: Sequence[range]) -> None:
        """Have workers play and write these blocks, unless one of them cannot write: then all episodes come here."""
        with open_place(self.order.writer.path) as place:
            if problem := self._problem(place):
                self._runtime.log(
                    f"collect {self._collection.env.name}: {problem}, so this process writes all episodes"
                )
                return self.play([index for block in blocks for index in block])
            while blocks:
                try:
                    self._write_blocks(place, blocks)
                    return None
                except WorkerFailed as failed:  # one by one, those before the episode that cannot be played are kept
                    self.play(blocks[failed.task])
                    blocks = blocks[failed.task + 1 :]
        return None

    def _problem(self, place: Place) -> str:
        """Why not all workers can write at `place`; empty if they can."""
        answers = self._workers.map(Place.problem, [(place,)] * self._workers.count)
        problems = Counter(problem for _, problem in answers if problem)
        if not problems:
            return ""
        return f"{problems.total()} of {self._workers.count} workers cannot write: {problems.most_common(1)[0][0]}"

    def _write_blocks(self, place: Place, blocks: Sequence[range]) -> None:
        play, writer = partial(play_episode, self._collection), self.order.writer
        tasks = [(play, place, writer.recipe, block.start, block.stop) for block in blocks]
        waiting: dict[int, list[StagedPart]] = {}
        for number, parts in self._workers.map(write_block, tasks, episodes=BLOCK_EPISODES):
            waiting[blocks[number].start] = parts
            self._show(len(blocks[number]), sum(part.rows for part in parts))
            while writer.next in waiting:
                for part in waiting.pop(writer.next):
                    writer.take(part)

    def _show(self, episodes: int, rows: int) -> None:
        self._done, self._rows = self._done + episodes, self._rows + rows
        self._progress.update(self._done, frames=f"{self._rows / (self._runtime.clock() - self._began):,.0f}/s")


class _IndexOrder:
    """Episodes finish in any order and are written in the order of their indices; those that finish early wait,
    compressed. The writer is opened once the first ones suffice to estimate the size of the dataset."""

    def __init__(self, missing: list[int], open_writer: Callable[[Sequence[PackedEpisode]], Writer]) -> None:
        self._missing, self._open_writer = missing, open_writer
        self._waiting: dict[int, PackedEpisode] = {}
        self._writer: Writer | None = None

    @property
    def writer(self) -> Writer:
        """The writer, once it is open."""
        if self._writer is None:
            raise ValueError("no writer is open")
        return self._writer

    def add(self, episode: PackedEpisode) -> None:
        """Take an episode, and write those whose turn it is."""
        self._waiting[episode.index] = episode
        self.write()

    def write(self, smallest_sample: int = 0) -> None:
        """Write the waiting episodes whose turn it is. The writer opens with `smallest_sample` of them (0: as many as
        an estimate takes)."""
        if self._writer is None:
            first = itertools.takewhile(self._waiting.__contains__, self._missing[:SAMPLE_EPISODES])
            sample = [self._waiting[index] for index in first]
            if sample_suffices(sample, smallest_sample or len(self._missing)):
                self._writer = self._open_writer(sample)
        while self._writer is not None and self._writer.next in self._waiting:
            self._writer.add(self._waiting.pop(self._writer.next))
