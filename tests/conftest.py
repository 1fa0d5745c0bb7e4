"""A tiny world: a real gymnasium environment whose frames are cheap, registered in every process that needs it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from wm.episodes.schema import Episode

ROOT = Path(__file__).resolve().parent.parent
TINY = "tests.tiny:Tiny-v0"

torch.set_num_threads(1)


@pytest.fixture
def wm(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the real command in `tmp_path`: wm("collect", "--env", TINY, code=0)."""

    def run(*arguments: str, code: int | None = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command(*arguments), cwd=tmp_path, env=environment(**variables), capture_output=True, text=True, timeout=240
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    return run


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stages", *arguments]


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WM_WORKERS": "1", **variables}


def make_episode(index: int, rows: int = 20, size: int = 32, terminated: bool = True) -> Episode:
    """An episode whose every frame is different."""
    random = np.random.default_rng(index)
    return Episode(
        index=index,
        seed=1000 + index,
        frames=random.integers(0, 256, (rows, size, size, 3), np.uint8),
        actions=random.integers(0, 3, rows).astype(np.int32),
        rewards=np.append(random.normal(size=rows - 1), 0).astype(np.float32),
        labels=random.normal(size=(rows, 2)).astype(np.float32),
        terminated=terminated,
        truncated=not terminated,
    )


RECIPE = {
    "env": {"name": TINY, "size": 32, "gray": False, "actions": "auto"},
    "action_space": {"count": 3, "low": [], "high": []},
    "labels": ["a", "b"],
}
