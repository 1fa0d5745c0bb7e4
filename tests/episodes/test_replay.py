"""The replay: a buffer of fixed arrays (I3, I4) and its writer, bounded on disk and read once (I11, I12)."""

from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from wm.actions import ActionSpace
from wm.artifacts import durable, manifest
from wm.episodes.dataset import Dataset
from wm.episodes.replay import ReplayBuffer, ReplayWriter
from wm.episodes.writer import create
from wm.errors import BadData
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


class ScriptedSteps:
    """Adds episodes of 4, 5, ... steps whose every frame, action and reward identifies its place."""

    def __init__(self, replay: ReplayBuffer | ReplayWriter) -> None:
        self.replay = replay
        self.buffer = replay.buffer if isinstance(replay, ReplayWriter) else replay
        self.seeds = 0
        self.left = [0] * self.buffer.num_envs
        for env_index in range(self.buffer.num_envs):
            self._start_episode(env_index)

    def _start_episode(self, env_index: int) -> None:
        self.seeds += 1
        self.left[env_index] = 4 + self.seeds % 7
        self.replay.start_episode(env_index, self._frame(env_index), self.seeds)

    def _frame(self, env_index: int) -> Any:
        return np.full(SHAPE, (7 * self.seeds + 13 * self.left[env_index]) % 256, np.uint8)

    def step(self) -> None:
        for env_index in range(self.buffer.num_envs):
            self.left[env_index] -= 1
            left, ended = self.left[env_index], self.left[env_index] == 0
            self.replay.add_step(env_index, self._frame(env_index), left % 4, 0.5 * left, ended and env_index == 0)
            if ended:
                self._start_episode(env_index)
        if isinstance(self.replay, ReplayWriter) and self.replay.part_is_full:
            self.replay.commit()
            self.replay.evict()


def writer_at(path: Path, capacity: int = 60, part_rows: int = 20) -> ReplayWriter:
    return ReplayWriter(path, RECIPE, ReplayBuffer(2, capacity, SHAPE, SPACE), part_rows, capacity + part_rows)


def played(path: Path, steps: int, **sizes: int) -> ReplayWriter:
    create(path, RECIPE)
    writer = writer_at(path, **sizes)
    script = ScriptedSteps(writer)
    for _ in range(steps):
        script.step()
    return writer


def contents(buffer: ReplayBuffer) -> list[dict[str, Any]]:
    return [
        {name: column.tolist() for name, column in buffer.newest(env_index, int(buffer.lengths[env_index])).items()}
        for env_index in range(buffer.num_envs)
    ]


def test_a_buffer_takes_its_whole_memory_from_the_start() -> None:  # I3
    trim()  # else freed memory would be taken first
    before = anonymous_memory()
    buffer = ReplayBuffer(2, 4000, (64, 64, 3), SPACE)
    taken = anonymous_memory() - before
    assert buffer.nbytes == 4000 * (64 * 64 * 3 + 4 + 4 + 1 + 1 + 8)
    assert taken > 0.95 * buffer.nbytes
    full = anonymous_memory()
    for _ in range(3):
        for step in range(2000):
            buffer.add_step(step % 2, np.full((64, 64, 3), 9, np.uint8), 0, 0.0, False)
    assert anonymous_memory() - full < 2_000_000


def test_a_sample_owns_its_memory() -> None:  # I4
    buffer = ReplayBuffer(2, 60, SHAPE, SPACE)
    script = ScriptedSteps(buffer)
    for _ in range(50):
        script.step()
    steps = buffer.sample(4, 5, np.random.default_rng(0))
    before = steps.frames.copy()
    for column in buffer.columns.values():
        for part in vars(steps).values():
            assert not np.shares_memory(part, column)
    buffer.columns["frames"].fill(255)
    assert np.array_equal(steps.frames, before)


def test_samples_are_windows_in_order_that_never_cross_the_write_head() -> None:
    buffer = ReplayBuffer(1, 40, SHAPE, SPACE)
    for number in range(97):
        if number % 10 == 0:
            buffer.start_episode(0, np.full(SHAPE, number, np.uint8), number)
        else:
            buffer.add_step(0, np.full(SHAPE, number, np.uint8), number % 4, float(number), number % 10 == 9)
    sampled = set()
    for draw in range(200):
        steps = buffer.sample(2, 8, np.random.default_rng(draw))
        numbers = steps.frames[..., 0, 0, 0].astype(int)
        assert (np.diff(numbers, axis=1) == 1).all()
        assert numbers.min() >= 57
        assert (steps.first == (numbers % 10 == 0)).all()
        assert (steps.terminal == (numbers % 10 == 9)).all()
        assert (steps.actions.argmax(-1) == np.where(numbers % 10 == 0, 0, numbers % 4)).all()
        sampled |= set(numbers.ravel().tolist())
    assert sampled == set(range(57, 97))


def test_a_restored_buffer_equals_the_one_that_was_written(tmp_path: Path) -> None:  # I12
    for steps in (12, 150):  # a buffer that is not full, and one that is
        writer = played(tmp_path / f"{steps}.zarr", steps)
        writer.commit()
        again = writer_at(tmp_path / f"{steps}.zarr")
        again.restore(writer.next_piece, writer.envs)
        assert contents(again.buffer) == contents(writer.buffer)
    assert (again.next_piece, again.envs) == (writer.next_piece, writer.envs)
    assert [part[0] for part in again.parts] == [part[0] for part in writer.parts]


def test_restoring_removes_parts_newer_than_the_checkpoint(tmp_path: Path) -> None:
    writer = played(tmp_path / "r.zarr", 40)
    writer.commit()
    next_piece, envs, before = writer.next_piece, dict(writer.envs), contents(writer.buffer)
    script = ScriptedSteps(writer)
    for _ in range(10):
        script.step()
    writer.commit()
    (tmp_path / "r.zarr" / ".staging" / "torn").mkdir(parents=True)
    again = writer_at(tmp_path / "r.zarr")
    again.restore(next_piece, envs)
    assert contents(again.buffer) == before
    assert not (tmp_path / "r.zarr" / ".staging").exists()
    assert Dataset.open(tmp_path / "r.zarr").collected == next_piece


def test_the_replay_on_disk_is_at_most_the_capacity_and_two_parts(tmp_path: Path) -> None:  # I11
    sizes = []
    create(tmp_path / "r.zarr", RECIPE)
    writer = writer_at(tmp_path / "r.zarr")
    script = ScriptedSteps(writer)
    for _ in range(5 * 60):
        script.step()
        sizes.append(len(list((tmp_path / "r.zarr").glob("part-*"))))
    assert max(sizes) <= 60 // 20 + 2
    assert durable.folder_size(tmp_path / "r.zarr") < 5 * 20 * 2000 + 10_000
    assert len(writer.envs) <= 5 * 20


def test_a_replay_is_a_dataset_without_its_oldest_episodes(tmp_path: Path) -> None:
    writer = played(tmp_path / "r.zarr", 200)
    dataset = Dataset.open(tmp_path / "r.zarr")
    assert dataset.missing
    assert dataset.missing[0][0] == 0
    episodes = [episode for part in dataset.parts for episode in dataset.episodes_of(part)]
    assert {episode.index for episode in episodes} == set(writer.envs)
    by_seed: dict[int, list[Any]] = {}
    for episode in episodes:
        by_seed.setdefault(episode.seed, []).append(episode)
    whole = [pieces for pieces in by_seed.values() if len(pieces) > 1]
    assert whole
    for pieces in whole:
        for piece, following in pairwise(pieces):
            assert not piece.terminated
            assert not piece.truncated
            assert np.array_equal(piece.frames[-1], following.frames[0])


def test_replays_of_one_recipe_with_other_steps_have_other_fingerprints(tmp_path: Path) -> None:
    """A Dreamer's steps do not follow from the recipe: V, trained on one replay, is not up to date for another."""
    played(tmp_path / "a.zarr", 200)
    played(tmp_path / "same.zarr", 200)
    with mock.patch.object(ScriptedSteps, "_frame", return_value=np.zeros(SHAPE, np.uint8)):
        played(tmp_path / "b.zarr", 200)
    a, same, b = (Dataset.open(tmp_path / f"{name}.zarr") for name in ("a", "same", "b"))
    assert (a.recipe, a.upto, a.missing) == (b.recipe, b.upto, b.missing)
    assert a.fingerprint == same.fingerprint != b.fingerprint


def test_another_dataset_with_its_first_episodes_missing_is_still_damaged(tmp_path: Path) -> None:
    with mock.patch.dict(RECIPE):
        del RECIPE["evicts"]
        played(tmp_path / "other.zarr", 200)
    with pytest.raises(BadData, match="has lost episodes 0 to"):
        Dataset.open(tmp_path / "other.zarr")


@pytest.mark.parametrize("edit", ["manifest", "metadata", "frames", "lost", "resealed"])
def test_a_part_that_is_not_the_one_of_the_checkpoint_is_named(tmp_path: Path, edit: str) -> None:
    writer = played(tmp_path / "r.zarr", 40)
    writer.commit()
    kept = writer.kept_parts()
    assert len(kept) > 1
    folder = tmp_path / "r.zarr" / max(kept)
    if edit == "lost":
        durable.remove(tmp_path / "r.zarr" / min(kept))  # as if it had been evicted
    elif edit == "resealed":
        manifest.write(folder, {"kind": "part", "format": 2, "name": folder.name, "by": "somebody else"})
    else:
        names = {"manifest": manifest.NAME, "metadata": "zarr.json", "frames": "frames/c.0.0.0.0"}
        file = folder / names[edit]
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data))
    with pytest.raises(BadData, match=r"part-\d+-\d+"):
        writer_at(tmp_path / "r.zarr").restore(writer.next_piece, writer.envs, kept)


def test_a_part_that_a_kill_kept_from_eviction_is_removed(tmp_path: Path) -> None:
    writer = played(tmp_path / "r.zarr", 40)
    writer.commit()
    kept = dict(list(writer.kept_parts().items())[1:])
    writer_at(tmp_path / "r.zarr").restore(writer.next_piece, writer.envs, kept)
    assert {path.name for path in (tmp_path / "r.zarr").glob("part-*")} == set(kept)
