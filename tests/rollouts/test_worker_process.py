import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.conftest import environment
from wm.rollouts import worker_process
from wm.rollouts.process_workers import ProcessWorkers
from wm.rollouts.worker_process import Worker, heartbeat, playing_memory

_kept: list[np.ndarray] = []


def fragment(megabytes: int) -> None:
    blocks = [bytes([1]) * 60_000 for _ in range(megabytes * 17)]
    _kept.append(np.frombuffer(blocks[-1], np.uint8))  # malloc keeps free memory below it


def resident_bytes() -> int:
    return psutil.Process().memory_info().rss


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc_trim")
def test_a_worker_returns_memory_that_a_task_has_freed() -> None:
    with ProcessWorkers(1, lambda: None, time.monotonic) as workers:
        ((_, start),) = workers.map(resident_bytes, [()])
        list(workers.map(fragment, [(250,)]))
        ((_, after),) = workers.map(resident_bytes, [()])
    assert after < start + (64 << 20)


def test_workers_have_one_thread_and_on_linux_inherit_slow_imports() -> None:
    assert "torch" in sys.modules
    looks = ["'torch' in __import__('sys').modules", "__import__('torch').get_num_threads()"]
    with ProcessWorkers(1, lambda: None, time.monotonic) as workers:
        has_torch, threads = (results for _, results in workers.map(eval, [(look,) for look in looks]))
    assert has_torch or sys.platform != "linux"
    assert threads == 1


def test_outside_a_worker_a_heartbeat_does_nothing() -> None:
    for _ in range(2 * worker_process._HEARTBEAT_EVERY):
        heartbeat()


def own_safe_path() -> str | None:
    return os.environ.get("PYTHONSAFEPATH")


@pytest.mark.parametrize("given", ["", "1"])
def test_what_an_environment_starts_finds_its_modules_as_ever(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", given)
    with ProcessWorkers(1, lambda: None, time.monotonic) as workers:
        assert workers.run_once(own_safe_path, ()) == ("done", given)
    assert os.environ["PYTHONSAFEPATH"] == given


def test_a_worker_imports_nothing_that_lies_in_the_working_folder(tmp_path: Path) -> None:
    """It may be a stranger's. The program lies elsewhere, as the script `wm` does."""
    work = tmp_path / "work"
    work.mkdir()
    for name in ("numpy", "torch", "socket", "selectors", "wm"):
        (work / f"{name}.py").write_text(f"open({str(tmp_path / name)!r}, 'w').close(); raise SystemExit\n")
    program = tmp_path / "program.py"
    program.write_text("from stages.__main__ import main\n\nif __name__ == '__main__':\n    main()\n")
    words = [sys.executable, str(program), "collect", "--env", "Catch", "--episodes", "2", "--size", "32"]
    done = subprocess.run(words, cwd=work, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not [path.name for path in tmp_path.iterdir() if path not in (work, program)], done.stderr


def leave(code: int) -> None:
    sys.exit(code)


class Nameless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raise_nameless() -> None:
    raise Nameless


@pytest.mark.parametrize(
    ("function", "arguments", "raised"), [(leave, (0,), "SystemExit: 0"), (raise_nameless, (), "Nameless")]
)
def test_a_task_that_leaves_or_raises_anything_is_reported_by_a_worker_that_lives(
    function: Callable[..., None], arguments: tuple[Any, ...], raised: str
) -> None:
    with ProcessWorkers(1, lambda: None, time.monotonic) as workers:
        assert workers.run_once(function, arguments) == ("failed", raised)


def test_a_worker_that_ends_reports_how() -> None:
    worker = Worker()
    worker.process.kill()
    worker.process.join()
    assert worker.messages() == [("failed", "its worker ended with signal SIGKILL", 0)]
    worker.end()


def test_the_memory_of_players_counts_the_process_that_they_play_for() -> None:
    """In a quick curriculum `wm train-controller` used 0.95 GB in Pong with one worker: 0.5 of its own, of which
    earlier stages had left 0.15."""
    assert 800_000_000 <= playing_memory(1) < 960_000_000
    assert playing_memory(0) >= 350_000_000
