"""A curriculum that is killed repeatedly ends as an uninterrupted one."""

import hashlib
import json
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import SLUG, SMALLEST, TINY, command, environment, run, small_config

KILLS = 20
TIMES = {"training_wall_seconds"}  # the keys of a score that depend on the clock


def digests(folder: Path, slug: str) -> dict[str, str]:
    """Fingerprints of all artifacts, and digests of episodes, latents, weights and scores."""
    values = {}
    for path in sorted((folder / "runs").glob(f"{slug}*/**/*")):
        name = str(path.relative_to(folder))
        if "archive" in path.parts:
            continue
        if path.name == "manifest.json":
            values[name] = json.loads(path.read_text())["fingerprint"]
        elif path.name == "score.json":
            score = json.loads(path.read_text())
            values[name] = json.dumps({key: value for key, value in score.items() if key not in TIMES})
        elif path.suffix == ".safetensors" or path.name in ("model.json", "fidelity.json") or "latents.zarr" in name:
            values[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    for path in sorted((folder / "data").glob(f"{slug}*/**/*")):
        if path.is_file() and path.name not in ("provenance.jsonl", ".index"):  # provenance and a cache
            values[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return values


def kill_and_compare(folder: Path, slug: str, *words: str) -> None:
    """A command that is killed `KILLS` times ends as an uninterrupted one."""
    reference, killed = folder / "reference", folder / "killed"
    reference.mkdir()
    killed.mkdir()
    started = time.monotonic()
    run(reference, *words)
    seconds = time.monotonic() - started
    times, deaths = random.Random(0), 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            command(*words), cwd=killed, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(times.uniform(1.0, min(seconds / 3, 20.0)))
        except subprocess.TimeoutExpired:
            process.kill()
            deaths += 1
        process.wait()
    run(killed, *words)
    assert deaths >= KILLS // 2, "the curriculum ended before it could be killed"
    assert digests(killed, slug) == digests(reference, slug)
    assert not list((killed / "runs").rglob("*.partial"))


@pytest.mark.slow
def test_twenty_kills_leave_no_trace(tmp_path: Path) -> None:
    longer = {
        "train-vae": ("--steps", "300", *SMALLEST["train-vae"][2:-2], "--set", "validate_every=20"),
        "train-mdnrnn": ("--steps", "300", *SMALLEST["train-mdnrnn"][2:]),
        "train-controller": ("--popsize", "6", "--max-generations", "30", "--set", "validate_every=5",
                             "--set", "validation_episodes=3"),
    }  # fmt: skip
    kill_and_compare(
        tmp_path, SLUG, "curriculum", "--envs", TINY, "--config", small_config(tmp_path, SMALLEST | longer)
    )


@pytest.mark.slow
def test_twenty_kills_of_a_quick_curriculum_leave_no_trace(tmp_path: Path) -> None:
    """A real game with its own preset: a quarter of an hour."""
    kill_and_compare(tmp_path, "CartPole", "curriculum", "--envs", "CartPole", "--preset", "quick")


@pytest.mark.slow
def test_a_kill_in_each_phase_of_a_round_in_the_dream_leaves_no_trace(tmp_path: Path) -> None:
    """Rounds of a policy gradient: killed when the second round collects, encodes, trains M, and trains C."""
    stages = SMALLEST | {
        "curriculum": ("--rounds", "3"),
        "collect": ("--episodes", "60", "--size", "32"),
        "train-mdnrnn": ("--network", "\"rollout\"", "--hidden", "0", "--steps", "60", "--batch", "32",
                         "--set", "units=32", "--set", "warm_up=2", "--set", "rollout_steps=4"),
        "train-controller": ("--algo", "\"ppo\"", "--in", "\"dream\"", "--set", "units=32", "--set", "num_envs=64",
                             "--set", "rollout_steps=16", "--set", "max_dream_steps=30000",
                             "--set", "validate_steps=10000", "--set", "validation_episodes=4"),
    }  # fmt: skip
    words = "curriculum", "--envs", TINY, "--config", small_config(tmp_path, stages)
    reference, killed = tmp_path / "reference", tmp_path / "killed"
    reference.mkdir()
    killed.mkdir()
    run(reference, *words)
    data, again = killed / "data" / f"{SLUG}.round2.zarr", killed / "runs" / f"{SLUG}.round2"
    phases = (data, again / f"latents-{SLUG}.round2.partial", again / "mdnrnn.partial", again / "controller.partial")
    for phase in phases:
        process = subprocess.Popen(
            command(*words), cwd=killed, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        while process.poll() is None and not phase.exists():
            time.sleep(0.001)
        assert process.poll() is None, f"{phase.name} was not seen"
        process.kill()
        process.wait()
        assert not (again / "controller").exists()
    run(killed, *words)
    assert digests(killed, SLUG) == digests(reference, SLUG)
    assert not list((killed / "runs").rglob("*.partial"))
