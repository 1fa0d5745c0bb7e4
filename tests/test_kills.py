"""A quick curriculum on real games, killed ten times with its whole process group."""

import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import command, environment
from wm.artifacts import manifest

KILLS = 10
WORDS = ("curriculum", "--preset", "quick")
ALL_CORES = environment(WM_WORKERS="0", OMP_NUM_THREADS=str(os.cpu_count()))


def committed(folder: Path) -> dict[str, str]:
    """Seed and return of every committed episode. Parts are not compared: a longer one may replace a shorter one."""
    episodes = {}
    for part in sorted(folder.glob("data/*.zarr/part-*")):
        table = json.loads((part / "zarr.json").read_text())["attributes"]["episodes"]
        for index, seed, total in zip(table["index"], table["seed"], table["return"], strict=True):
            episodes[f"{part.parent.name}/{index}"] = f"{seed} {total}"
    return episodes


def wm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), cwd=folder, env=ALL_CORES, capture_output=True, text=True)


@pytest.mark.slow
def test_a_quick_curriculum_survives_ten_kills_of_its_process_group(tmp_path: Path) -> None:
    seed = int(os.environ.get("TINY_SEED", "0"))
    chance = random.Random(seed)
    episodes: dict[str, str] = {}
    finished: dict[str, str] = {}
    with open(tmp_path / "log", "w") as log:
        for _ in range(KILLS):
            process = subprocess.Popen(
                command(*WORDS), cwd=tmp_path, env=ALL_CORES,
                start_new_session=True, stdout=log, stderr=log,
            )  # fmt: skip
            time.sleep(chance.uniform(3, 120))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            current = committed(tmp_path)
            assert episodes.items() <= current.items(), f"a committed episode was lost (TINY_SEED={seed})"
            episodes = current
            manifests = tmp_path.glob(f"runs/*/*/{manifest.NAME}")
            artifacts = {str(path): path.read_text() for path in manifests if ".partial" not in str(path)}
            assert finished.items() <= artifacts.items(), "a finished artifact was lost or trained again"
            finished = artifacts
    last = wm(tmp_path, *WORDS)
    assert last.returncode == 0, last.stderr
    assert episodes.items() <= committed(tmp_path).items()
    assert len(re.findall(r"^(?:Pong|LunarLander|Breakout|CarRacing) +\S.* ± .*\d s$", last.stdout, re.M)) == 4
    verified = wm(tmp_path, "verify", ".")
    assert verified.returncode == 0, verified.stderr
    again = wm(tmp_path, *WORDS)
    assert again.returncode == 0, again.stderr
    assert len(re.findall(r"^\[\d+/24\] .*: up to date", again.stderr, re.M)) == 24
