"""A machine with too little memory: one sentence, its exit code, and everything finished stays."""

import errno
import os
from pathlib import Path

import pytest
import torch

from tests.conftest import SLUG, TINY, outcome, run
from wm.errors import ran_out_of_memory
from wm.pipeline import train_vae


def test_memory_that_is_not_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "collect", "--env", TINY, "--episodes", "4")
    monkeypatch.setattr(train_vae, "new_vae", lambda *_: torch.empty(1 << 55))  # torch says so itself
    done = outcome(tmp_path, "train-vae", "--env", TINY, "--steps", "1")
    assert done.returncode == 71
    assert done.stderr.splitlines()[-1].startswith("wm: there is not enough memory, or a limit on")
    assert (tmp_path / "data" / f"{SLUG}.zarr" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "fork"), True),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), True),  # of fork, with a limit on processes
        (BlockingIOError(errno.EAGAIN, "write could not complete without blocking"), False),
        (OSError(errno.ENOSPC, "disk"), False),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_is_told_from_other_errors(error: Exception, expected: bool) -> None:
    assert ran_out_of_memory(error) is expected
