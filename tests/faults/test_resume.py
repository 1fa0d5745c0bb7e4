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
from wm.training import metrics

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
        told = [line["step"] for line in lines if kind in line]
        assert told == sorted(set(told))
