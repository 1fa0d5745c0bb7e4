"""Training killed at random steps: what comes out is, bit for bit, what an uninterrupted training gives."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SLUG, arguments, environment, run
from wm.artifacts import manifest
from wm.evolution.search_log import read_log
from wm.telemetry import metrics_log as metrics

KILLED_AT = """
import os, signal, sys
from wm.training.loop import Trainer

take = Trainer.step
def step(self, number):
    if number == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return take(self, number)

Trainer.step = step
from stages.cli import run
sys.exit(run(sys.argv[2:]))
"""
FOLDER = {"train-vae": "vae", "train-mdnrnn": "mdnrnn"}


def weights(folder: Path, stage: str) -> str:
    files = json.loads((folder / "runs" / SLUG / FOLDER[stage] / manifest.NAME).read_text())["files"]
    return str(files["weights.safetensors"]["sha256"])


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["train-vae", "train-mdnrnn"])
def test_twenty_five_kills_change_no_bit(chain: Path, tmp_path: Path, stage: str) -> None:
    steps = {"train-vae": 60, "train-mdnrnn": 150}[stage]
    shutil.copytree(chain / "data", tmp_path / "data")
    if stage == "train-mdnrnn":
        for name in ("vae", "latents"):
            shutil.copytree(chain / "runs" / SLUG / name, tmp_path / "runs" / SLUG / name)
    kills = sorted(np.random.default_rng(0).choice(np.arange(1, steps), 25, replace=False).tolist())
    for kill in kills:
        words = [sys.executable, "-c", KILLED_AT, str(kill), *arguments(stage)]
        done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
    run(tmp_path, *arguments(stage))
    assert weights(tmp_path, stage) == weights(chain, stage)
    lines = metrics.read(tmp_path / "runs" / SLUG / FOLDER[stage])
    text = (tmp_path / "runs" / SLUG / FOLDER[stage] / metrics.NAME).read_text()
    assert len(lines) == len(text.splitlines())
    for kind in ("loss", "validation_loss"):
        steps = [line["step"] for line in lines if kind in line]
        assert steps == sorted(set(steps))


EVOLUTION_KILLED_AT = """
import os, signal, sys
from wm.evolution.fitness import Fitness
from wm.artifacts import durable

generation, place = int(sys.argv[1]), sys.argv[2]
def die(now):
    if now == generation:
        os.kill(os.getpid(), signal.SIGKILL)

real, append = Fitness.real_returns, durable.append
def play(self, candidates, number):
    if place == "before the episodes":
        die(number)
    played = real(self, candidates, number)
    if place == "after the episodes":
        die(number)
    return played

def log(path, line):
    number = path.read_text().count("\\n") if path.exists() else 0
    if place == "before the log":
        die(number)
    if place == "in the log" and number == generation:
        with open(path, "ab") as file:
            file.write(line[: len(line) // 2])
        die(number)
    append(path, line)
    if place == "after the log":
        die(number)

Fitness.real_returns, durable.append = play, log
from stages.cli import run
sys.exit(run(sys.argv[3:]))
"""
PLACES = ("before the episodes", "after the episodes", "before the log", "in the log", "after the log")


@pytest.mark.slow
def test_an_evolution_killed_twenty_five_times_ends_with_the_same_controller(chain: Path, tmp_path: Path) -> None:
    restarts = "--set", "restarts=3"
    words = arguments("train-controller", "--max-generations", "40", "--workers", "1", *restarts)
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        shutil.copytree(chain / "data", folder / "data")
        for name in ("vae", "latents", "mdnrnn"):
            shutil.copytree(chain / "runs" / SLUG / name, folder / "runs" / SLUG / name)
    run(folders[0], *words)
    random = np.random.default_rng(0)
    addresses = random.choice(40 * len(PLACES), 25, replace=False)
    for generation, place in sorted(divmod(int(address), len(PLACES)) for address in addresses):
        command = [sys.executable, "-c", EVOLUTION_KILLED_AT, str(generation), PLACES[place], *words]
        done = subprocess.run(command, cwd=folders[1], env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, (generation, PLACES[place], done.stderr)
    run(folders[1], *words)
    sums = [
        json.loads((folder / "runs" / SLUG / "controller" / manifest.NAME).read_text())["files"] for folder in folders
    ]
    assert sums[0]["weights.safetensors"] == sums[1]["weights.safetensors"]
    logs = [read_log(folder / "runs" / SLUG / "controller") for folder in folders]
    untimed = [[{name: line[name] for name in line if name != "seconds"} for line in log] for log in logs]
    assert untimed[0] == untimed[1]
