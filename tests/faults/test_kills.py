"""SIGKILL at every phase of `wm collect` with two workers, recovery included.

A kill waits for a phase that is visible on disk, not for a time: so it hits the same phases on a busy machine.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY, command, environment
from tests.faults.conftest import files_of
from wm.artifacts import manifest
from wm.episodes import repair
from wm.episodes.dataset import Dataset
from wm.episodes.parts import STAGING

TWO_WORKERS = environment(WM_WORKERS="2")
PHASES = ("start", "recovery", "commit", "between commits")
TIMEOUT = 300.0  # seconds that any phase may take to come, on a machine however busy
POLL = 0.0005  # seconds between two looks at the disk; a commit of 15 synced files takes about 10 ms


def checked_episodes(path: Path) -> int:
    """The number of episodes in the dataset, with every byte of it verified and no frame all zeros."""
    if not (path / manifest.NAME).exists():
        return 0
    assert not [checked.problem for checked in repair.check(path) if checked.problem]
    dataset = Dataset.open(path)
    assert not dataset.missing
    for part in dataset.parts[-3:]:
        for frames in np.array_split(dataset.shard(part, "frames").all(), 8):
            assert frames.reshape(len(frames), -1).any(axis=1).all(), "a frame is all zeros"
    return dataset.episodes


def parts_in(path: Path) -> int:
    return len(list(path.glob("part-*")))


def staged_in(path: Path) -> list[str]:
    """Names of the parts that are being written."""
    try:
        return os.listdir(path / STAGING)
    except FileNotFoundError:
        return []


class Killer:
    """Starts `wm collect` again and again and kills it, in the phase that `kill` is given."""

    def __init__(self, folder: Path, episodes: int, chance: random.Random) -> None:
        self.words = command("collect", "--env", TINY, "--episodes", str(episodes), "--size", "32", "--data", "d.zarr")
        self.folder, self.path, self.chance = folder, folder / "d.zarr", chance
        self.torn = 0
        uninterrupted = folder / "uninterrupted"
        uninterrupted.mkdir()
        began = time.monotonic()
        process = self._start(uninterrupted)
        self._wait(process, (uninterrupted / "d.zarr" / manifest.NAME).exists)
        self.startup = time.monotonic() - began
        began = time.monotonic()
        assert process.wait(TIMEOUT) == 0
        self.files = files_of(uninterrupted / "d.zarr")
        self.parts = parts_in(uninterrupted / "d.zarr")
        self.seconds_per_part = (time.monotonic() - began) / self.parts

    def _start(self, folder: Path) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.words, cwd=folder, env=TWO_WORKERS, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    @staticmethod
    def _wait(process: "subprocess.Popen[bytes]", reached: Callable[[], bool]) -> None:
        """Wait for the phase, or for the end of the process."""
        deadline = time.monotonic() + TIMEOUT
        while not reached() and process.poll() is None:
            assert time.monotonic() < deadline, "the phase never came"
            time.sleep(POLL)

    def finish(self) -> None:
        """Run the command to its end."""
        assert self._start(self.folder).wait(TIMEOUT) == 0

    def kill(self, phase: str, whole_group: bool) -> bool:
        """Run the command until the phase and kill it. False if it ended before the kill."""
        sentinel = self.path / STAGING / "sentinel"
        resumed = (self.path / manifest.NAME).exists()
        if resumed:  # a writer that opens the dataset removes what is staged, which shows when recovery begins
            sentinel.mkdir(parents=True, exist_ok=True)
        process = self._start(self.folder)
        if phase == "start":
            self._wait_seconds(process, self.startup)
        else:
            opened = (lambda: not sentinel.exists()) if resumed else (self.path / manifest.NAME).exists
            self._wait(process, opened)
        if "commit" in phase:
            parts = parts_in(self.path) + self.chance.randrange(self.parts // 4)
            self._wait(process, lambda: parts_in(self.path) >= parts)
        if phase == "commit":
            self._wait(process, lambda: bool(staged_in(self.path)))
        elif phase == "between commits":
            self._wait_seconds(process, self.seconds_per_part)
        if (code := process.poll()) is not None:
            assert code == 0
            return False
        if whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        self.torn += staged_in(self.path) not in ([], [sentinel.name])
        return True

    def _wait_seconds(self, process: "subprocess.Popen[bytes]", most: float) -> None:
        until = time.monotonic() + self.chance.uniform(0, most)
        self._wait(process, lambda: time.monotonic() >= until)


def kill_repeatedly(folder: Path, kills: int, seed: int, episodes: int) -> tuple[int, int, Counter[str]]:
    """Kill the whole group, or the main process alone, in every phase. Returns how often a dataset was completed and
    restarted, the kills in the middle of a commit, and the kills by phase."""
    killer = Killer(folder, episodes, random.Random(seed))
    completed, previous, phases = 0, 0, Counter[str]()
    for number in range(kills):
        phase = PHASES[number % len(PHASES)]
        phases[phase] += killer.kill(phase, whole_group=(number + number // len(PHASES)) % 2 == 0)
        current = checked_episodes(killer.path)
        assert current >= previous, f"kill {number} ({phase}): {previous} episodes before, {current} now (seed {seed})"
        previous = current
        if current == episodes:
            assert files_of(killer.path) == killer.files
            shutil.rmtree(killer.path)
            completed, previous = completed + 1, 0
    killer.finish()
    assert files_of(killer.path) == killer.files
    assert not staged_in(killer.path)
    return completed, killer.torn, phases


@pytest.mark.slow
def test_a_kill_in_every_phase_loses_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("TINY_SEED", "0"))
    _, _, phases = kill_repeatedly(tmp_path, kills=4, seed=seed, episodes=1200)
    assert phases == dict.fromkeys(PHASES, 1)


@pytest.mark.slow
def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("TINY_SEED", "1"))
    completed, torn, phases = kill_repeatedly(tmp_path, kills=200, seed=seed, episodes=4000)
    assert completed > 3
    assert torn > 10, "kills in the middle of a commit"
    assert min(phases[phase] for phase in PHASES) > 30, phases
