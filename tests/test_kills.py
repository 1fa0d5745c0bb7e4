"""The long one: a quick curriculum on real games, killed ten times with its whole process group."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import command, environment
from wm.artifacts import manifest

KILLS = 10
WORDS = ("curriculum", "--preset", "quick")


def committed(folder: Path) -> dict[str, str]:
    """Digests of the manifests of all committed parts, by their first episode: a longer part may replace a shorter."""
    found = {}
    for part in sorted(folder.glob("data/*.zarr/part-*")):
        table = json.loads((part / "zarr.json").read_text())["attributes"]["episodes"]
        for place, index in enumerate(table["index"]):
            found[f"{part.parent.name}/{index}"] = f"{table['seed'][place]} {table['return'][place]}"
    return found


@pytest.mark.slow
def test_a_quick_curriculum_survives_ten_kills_of_its_process_group(tmp_path: Path) -> None:
    seed = int(os.environ.get("WM_TEST_SEED", "0"))
    chance = random.Random(seed)
    kept: dict[str, str] = {}
    finished: dict[str, str] = {}
    with open(tmp_path / "log", "w") as log:
        for _ in range(KILLS):
            process = subprocess.Popen(
                command(*WORDS), cwd=tmp_path, env=environment(WM_WORKERS="0", OMP_NUM_THREADS="2"),
                start_new_session=True, stdout=log, stderr=log,
            )  # fmt: skip
            time.sleep(chance.uniform(3, 120))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            now = committed(tmp_path)
            assert kept.items() <= now.items(), f"a committed episode is gone (WM_TEST_SEED={seed})"
            kept = now
            done = {
                str(p): p.read_text() for p in tmp_path.glob(f"runs/*/*/{manifest.NAME}") if ".partial" not in str(p)
            }
            assert finished.items() <= done.items(), "a finished artifact was lost or made again"
            finished = done
    last = subprocess.run(
        command(*WORDS), cwd=tmp_path, env=environment(WM_WORKERS="0"), capture_output=True, text=True
    )
    assert last.returncode == 0, last.stderr
    assert kept.items() <= committed(tmp_path).items()
    assert last.stdout.count("preview, n=10") == 4
    verified = subprocess.run(command("verify", "."), cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert verified.returncode == 0, verified.stderr
    again = subprocess.run(command(*WORDS), cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert again.stderr.count("up to date") == 24
