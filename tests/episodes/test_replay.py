"""The replay: a ring of fixed arrays (I3, I4) and the journal behind it, bounded on disk and read once (I11, I12)."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wm.actions import ActionSpace
from wm.artifacts import durable
from wm.episodes.dataset import Dataset
from wm.episodes.replay import ReplayWriter, Ring
from wm.episodes.writer import create
from wm.telemetry.malloc import trim
from wm.telemetry.usage import anonymous_memory

SPACE = ActionSpace(count=4)
SHAPE = (16, 16, 1)
RECIPE = {
    "env": {"name": "none", "size": 16, "gray": True, "action_space": "auto"},
    "env_id": "none",
    "action_space": SPACE.as_json(),
    "labels": [],
    "policy": "dreamer",
    "evicts": True,
}


class PolicySpec:
    """Plays episodes of 5, 6, 7, ... steps whose every frame, action and reward tells where it belongs."""

    def __init__(self, ring: Ring, journal: ReplayWriter | None = None) -> None:
        self.ring, self.journal = ring, journal
        self.seeds = 0
        self.left = [0] * ring.lanes
        for lane in range(ring.lanes):
            self._begin(lane)

    def _begin(self, lane: int) -> None:
        self.seeds += 1
        self.left[lane] = 4 + self.seeds % 7
        self.ring.begin(lane, self._frame(lane), self.seeds)
        self._noted(lane)

    def _frame(self, lane: int) -> Any:
        return np.full(SHAPE, (7 * self.seeds + 13 * self.left[lane]) % 256, np.uint8)

    def _noted(self, lane: int) -> None:
        if self.journal is not None:
            self.journal.noted(lane)

    def step(self) -> None:
        for lane in range(self.ring.lanes):
            self.left[lane] -= 1
            over = self.left[lane] == 0
            self.ring.add(lane, self._frame(lane), self.left[lane] % 4, 0.5 * self.left[lane], over and lane == 0)
            self._noted(lane)
            if over:
                self._begin(lane)
        if self.journal is not None and self.journal.due:
            self.journal.commit()
            self.journal.evict()


def journal_at(path: Path, capacity: int = 60, part_rows: int = 20) -> ReplayWriter:
    return ReplayWriter(path, RECIPE, Ring(2, capacity, SHAPE, SPACE), part_rows, capacity + part_rows)


def played(path: Path, steps: int, **sizes: int) -> ReplayWriter:
    create(path, RECIPE)
    journal = journal_at(path, **sizes)
    player = PolicySpec(journal.ring, journal)
    for _ in range(steps):
        player.step()
    return journal


def contents(ring: Ring) -> list[dict[str, Any]]:
    return [
        {name: column.tolist() for name, column in ring.window(lane, int(ring.lengths[lane])).items()}
        for lane in range(ring.lanes)
    ]


def test_a_ring_has_its_whole_size_from_the_start() -> None:  # I3
    trim()  # what was freed before would be taken first
    before = anonymous_memory()
    ring = Ring(2, 4000, (64, 64, 3), SPACE)
    taken = anonymous_memory() - before
    assert ring.nbytes == 4000 * (64 * 64 * 3 + 4 + 4 + 1 + 1 + 4 + 8)
    assert taken > 0.95 * ring.nbytes
    full = anonymous_memory()
    for _ in range(3):
        for step in range(2000):
            ring.add(step % 2, np.full((64, 64, 3), 9, np.uint8), 0, 0.0, False)
    assert anonymous_memory() - full < 2_000_000


def test_a_sample_owns_its_memory() -> None:  # I4
    ring = Ring(2, 60, SHAPE, SPACE)
    player = PolicySpec(ring)
    for _ in range(50):
        player.step()
    for stack in (1, 3):
        steps = ring.sample(4, 5, np.random.default_rng(0), stack)
        before = steps.frames.copy()
        for column in ring.columns.values():
            for part in vars(steps).values():
                assert not np.shares_memory(part, column)
        ring.columns["frames"].fill(255)
        assert np.array_equal(steps.frames, before)


def test_samples_are_windows_in_the_order_of_play_that_never_cross_the_write_head() -> None:
    ring = Ring(1, 40, SHAPE, SPACE)
    for number in range(97):
        if number % 10 == 0:
            ring.begin(0, np.full(SHAPE, number, np.uint8), number)
        else:
            ring.add(0, np.full(SHAPE, number, np.uint8), number % 4, float(number), number % 10 == 9)
    seen = set()
    for draw in range(200):
        steps = ring.sample(2, 8, np.random.default_rng(draw))
        numbers = steps.frames[..., 0, 0, 0].astype(int)
        assert (np.diff(numbers, axis=1) == 1).all()
        assert numbers.min() >= 57
        assert (steps.first == (numbers % 10 == 0)).all()
        assert (steps.terminal == (numbers % 10 == 9)).all()
        assert (steps.actions.argmax(-1) == np.where(numbers % 10 == 0, 0, numbers % 4)).all()
        seen |= set(numbers.ravel().tolist())
    assert seen == set(range(57, 97))


def test_stacked_frames_are_the_newest_of_the_same_episode() -> None:
    ring = Ring(1, 40, SHAPE, SPACE)
    for number in range(30):
        if number % 10 == 0:
            ring.begin(0, np.full(SHAPE, number, np.uint8), number)
        else:
            ring.add(0, np.full(SHAPE, number, np.uint8), 0, 0.0, False)
    for draw in range(50):
        stacks = ring.sample(2, 4, np.random.default_rng(draw), stack=3).frames[..., 0, 0, :].astype(int)
        newest = stacks[..., -1]
        for back in (1, 2):
            assert (stacks[..., -1 - back] == np.maximum(newest - back, newest // 10 * 10)).all()


def test_what_is_read_back_is_what_was_in_memory(tmp_path: Path) -> None:  # I12
    for steps in (12, 150):  # a ring that is not full, and one that is
        journal = played(tmp_path / f"{steps}.zarr", steps)
        journal.commit()
        again = journal_at(tmp_path / f"{steps}.zarr")
        again.restore(journal.next, journal.lanes)
        assert contents(again.ring) == contents(journal.ring)
    assert (again.next, again.lanes) == (journal.next, journal.lanes)
    assert [part[0] for part in again.held] == [part[0] for part in journal.held]


def test_what_was_written_after_a_checkpoint_is_gone_after_it(tmp_path: Path) -> None:
    journal = played(tmp_path / "r.zarr", 40)
    journal.commit()
    upto, lanes, ring = journal.next, dict(journal.lanes), contents(journal.ring)
    player = PolicySpec(journal.ring, journal)
    for _ in range(10):
        player.step()
    journal.commit()
    (tmp_path / "r.zarr" / ".staging" / "torn").mkdir(parents=True)
    again = journal_at(tmp_path / "r.zarr")
    again.restore(upto, lanes)
    assert contents(again.ring) == ring
    assert not (tmp_path / "r.zarr" / ".staging").exists()
    assert Dataset.open(tmp_path / "r.zarr").held == upto


def test_the_disk_holds_no_more_than_the_capacity_and_two_parts(tmp_path: Path) -> None:  # I11
    sizes = []
    create(tmp_path / "r.zarr", RECIPE)
    journal = journal_at(tmp_path / "r.zarr")
    player = PolicySpec(journal.ring, journal)
    for _ in range(5 * 60):
        player.step()
        sizes.append(len(list((tmp_path / "r.zarr").glob("part-*"))))
    assert max(sizes) <= 60 // 20 + 2
    assert durable.folder_size(tmp_path / "r.zarr") < 5 * 20 * 2000 + 10_000
    assert len(journal.lanes) <= 5 * 20


def test_a_replay_is_a_dataset_whose_oldest_episodes_are_gone(tmp_path: Path) -> None:
    journal = played(tmp_path / "r.zarr", 200)
    dataset = Dataset.open(tmp_path / "r.zarr")
    assert dataset.missing
    assert dataset.missing[0][0] == 0
    episodes = [episode for part in dataset.parts for episode in dataset.episodes_of(part)]
    assert {episode.index for episode in episodes} == set(journal.lanes)
    by_seed: dict[int, list[Any]] = {}
    for episode in episodes:
        by_seed.setdefault(episode.seed, []).append(episode)
    whole = [pieces for pieces in by_seed.values() if len(pieces) > 1]
    assert whole
    for pieces in whole:
        for before, after in pairwise(pieces):
            assert not before.terminated
            assert not before.truncated
            assert np.array_equal(before.frames[-1], after.frames[0])


def test_another_dataset_with_its_first_episodes_missing_is_still_damaged(tmp_path: Path) -> None:
    from wm.errors import BadData

    played(tmp_path / "r.zarr", 200)
    recipe = {name: value for name, value in RECIPE.items() if name != "evicts"}
    other = tmp_path / "other.zarr"
    create(other, recipe)
    for part in (tmp_path / "r.zarr").glob("part-*"):
        part.rename(other / part.name)
    with pytest.raises(BadData, match="has lost episodes 0 to"):
        Dataset.open(other)
