"""Workers of `wm collect` that die, hang or raise; signals; two runs into one dataset."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import command, environment, still_running
from tests.faults.conftest import files_of
from wm.artifacts import manifest
from wm.episodes import repair
from wm.episodes.dataset import Dataset
from wm.seeding import episode_seed

FRAGILE = "tests.tiny:Fragile-v0"


def collect(folder: Path, breaks: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words = command("collect", "--env", FRAGILE, "--episodes", "30", "--size", "32", "--data", "d.zarr")
    return subprocess.run(
        words, cwd=folder, env=environment(WM_WORKERS="2", TINY_BREAK=breaks, **variables),
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def seed_of(index: int) -> int:
    return episode_seed("train", 0, "collect", index)


def test_episodes_whose_workers_raise_die_and_hang_are_replayed_by_another_worker(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    assert collect(tmp_path / "good", "raise:never:").returncode == 0
    faults = {"raise": 7, "die": 12, "hang": 20}
    breaks = ",".join(f"{how}:{seed_of(index)}:{tmp_path / how}" for how, index in faults.items())
    done = collect(tmp_path / "bad", breaks, WM_WORKER_TIMEOUT="5")
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / how).exists() for how in faults)
    assert files_of(tmp_path / "bad" / "d.zarr") == files_of(tmp_path / "good" / "d.zarr")


@pytest.mark.parametrize("index", [5, pytest.param(21, marks=pytest.mark.slow)])
def test_after_three_failures_of_a_seed_the_environments_error_is_reported(tmp_path: Path, index: int) -> None:
    done = collect(tmp_path, f"raise:{seed_of(index)}:")
    assert done.returncode == 70
    assert f"episode {index} of {FRAGILE} (seed {seed_of(index)}) failed 3 times" in done.stderr
    assert "ValueError: the environment broke" in done.stderr
    assert "Traceback" not in done.stderr
    assert Dataset.open(tmp_path / "d.zarr").episodes == index


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_ends_collecting_within_five_seconds_and_leaves_no_process(
    tmp_path: Path, number: int, code: int
) -> None:
    process = subprocess.Popen(
        command("collect", "--env", "Pong", "--episodes", "500"), cwd=tmp_path, env=environment(WM_WORKERS="2"),
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 120
    while not (tmp_path / "data" / "Pong.zarr" / manifest.NAME).exists() and time.monotonic() < until:
        time.sleep(0.1)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2
    began = time.monotonic()
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert not still_running(family, began + 5 - time.monotonic())
    assert time.monotonic() - began < 5.2
    assert "the same command resumes" in errors
    assert "Traceback" not in errors
    assert not list((tmp_path / "data" / "Pong.zarr" / ".staging").glob("*"))
    assert not [c.problem for c in repair.check(tmp_path / "data" / "Pong.zarr") if c.problem]


@pytest.mark.slow
def test_parallel_environments_end_with_their_parent_process(tmp_path: Path) -> None:
    envs = f"{FRAGILE},{FRAGILE.replace('Fragile', 'Tiny')}"
    words = command("curriculum", "--envs", envs, "--jobs", "2", "--set", "collect.episodes=40")
    seed = episode_seed("train", 0, "collect", 30)  # which the estimate before the start does not play
    breaks = {"TINY_BREAK": f"hang:{seed}:{tmp_path / 'hangs'}"}
    leader = subprocess.Popen(words, cwd=tmp_path, env=environment(**breaks), stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (tmp_path / "hangs").exists() and time.monotonic() < until:
        time.sleep(0.1)
    family = psutil.Process(leader.pid).children(recursive=True)
    leader.kill()
    leader.wait()
    assert len(family) >= 3
    assert not still_running(family, 5)


def test_the_second_of_two_runs_names_the_process_with_the_lock(tmp_path: Path) -> None:
    words = command("collect", "--env", "Pong", "--episodes", "200")
    first = subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        owner = tmp_path / "data" / ".Pong.zarr.owner"
        until = time.monotonic() + 30
        while not owner.exists() and time.monotonic() < until:
            time.sleep(0.05)
        second = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    finally:
        first.terminate()
        first.wait()
    assert second.returncode == 75
    assert f"is being written by process {first.pid}" in second.stderr


@pytest.mark.slow
def test_the_estimated_size_is_within_half_of_the_actual_one(tmp_path: Path) -> None:
    """Breakout's episodes differ most in length; benchmarks/estimate.py has all four environments."""
    words = ("collect", "--env", "Breakout", "--episodes", "40", "--json")
    dry_run = subprocess.run(
        command(*words, "--dry-run"), cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    subprocess.run(command(*words), cwd=tmp_path, env=environment(), capture_output=True, check=True)
    (plan,) = json.loads(dry_run.stdout)["plan"]
    size = sum(file.stat().st_size for file in (tmp_path / "data" / "Breakout.zarr").rglob("*") if file.is_file())
    assert 1.0 <= plan["disk_bytes"] / size <= 1.5
