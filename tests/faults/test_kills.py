"""SIGKILL at random moments of `wm collect` with two workers, recovery included."""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY, command, environment
from tests.faults.conftest import files_of
from wm.episodes import repair
from wm.episodes.dataset import Dataset

TWO_WORKERS = environment(WM_WORKERS="2")


def held(path: Path) -> int:
    """Episodes in the dataset, every byte of it checked, and not one frame that was never drawn."""
    if not (path / "manifest.json").exists():
        return 0
    assert not [checked.problem for checked in repair.check(path) if checked.problem]
    dataset = Dataset.open(path)
    assert not dataset.missing
    for part in dataset.parts[-3:]:
        for frames in np.array_split(dataset.shard(part, "frames").all(), 8):
            assert frames.reshape(len(frames), -1).any(axis=1).all(), "a frame is all zeros"
    return dataset.episodes


def kill_again_and_again(folder: Path, kills: int, seed: int, episodes: int) -> int:
    """Kill the whole group, or the main process alone; in every third go while it is still recovering from the last.
    Returns how often a dataset was completed and begun anew."""
    words = command("collect", "--env", TINY, "--episodes", str(episodes), "--size", "32", "--data", "d.zarr")
    chance = random.Random(seed)
    path, completed, before = folder / "d.zarr", 0, 0
    whole = folder / "whole"
    whole.mkdir()
    subprocess.run(words, cwd=whole, env=TWO_WORKERS, check=True, capture_output=True, timeout=300)
    for number in range(kills):
        process = subprocess.Popen(
            words, cwd=folder, env=TWO_WORKERS, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(chance.uniform(0.3, 0.7) if number % 3 == 0 else chance.uniform(0.7, 3.0))
        if number % 2:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        now = held(path)
        assert now >= before, f"kill {number}: {before} episodes were there, {now} are (seed {seed})"
        before = now
        if now == episodes:
            assert files_of(path) == files_of(whole / "d.zarr")
            shutil.rmtree(path)
            completed, before = completed + 1, 0
    subprocess.run(words, cwd=folder, env=TWO_WORKERS, check=True, capture_output=True, timeout=300)
    assert files_of(path) == files_of(whole / "d.zarr")
    assert not list((path / ".staging").glob("*"))
    return completed


def test_a_few_kills_lose_nothing(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, kills=3, seed=int(os.environ.get("TINY_SEED", "0")), episodes=1200)


@pytest.mark.slow
def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("TINY_SEED", "1"))
    assert kill_again_and_again(tmp_path, kills=200, seed=seed, episodes=4000) > 3
