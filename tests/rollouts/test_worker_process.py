import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

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
