import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from wm.errors import BadData, Stopped, WorkerFailed
from wm.rollouts import worker_process
from wm.rollouts.worker_process import heartbeat
from wm.rollouts.workers import LONG_EPISODE, Workers


def open_workers(count: int, check: object = lambda: None, **how: float) -> Workers:
    return Workers(count, check, time.monotonic, **how)  # type: ignore[arg-type]


def worker_processes() -> list[psutil.Process]:
    """Workers spawned by this process, or forked by its server."""
    family = psutil.Process().children(recursive=True)
    return [one for one in family if one.ppid() != os.getpid() or "spawn_main" in " ".join(one.cmdline())]


def square(number: int) -> int:
    return number * number


def die_once(number: int, marker: str) -> int:
    if number == 3 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_at(number: int, bad: int) -> int:
    if number == bad:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def raise_at(number: int, bad: int, log: str) -> int:
    if number == bad:
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")
        raise ZeroDivisionError("oops")
    return number


def refuse(number: int) -> int:
    raise BadData("bad")


def hang_once(number: int, marker: str) -> int:
    if number == 1 and not Path(marker).exists():
        Path(marker).touch()
        time.sleep(600)
    return number


def be_slow(steps: int) -> int:
    for _ in range(steps):
        heartbeat()
        time.sleep(0.01)
    return steps


def play_long(length: int) -> int:
    for _ in range(worker_process._HEARTBEAT_EVERY):
        heartbeat(length)
    return length


def test_an_episode_that_does_not_seem_to_end_is_told_once_with_the_option_that_ends_it() -> None:
    told: list[str] = []
    with Workers(1, lambda: None, time.monotonic, log=told.append) as workers:
        list(workers.map(play_long, [(LONG_EPISODE - 1,)]))
        assert told == []
        list(workers.map(play_long, [(LONG_EPISODE,)] * 3))
    assert len(told) == 1
    assert "--set max_steps=N to wm collect" in told[0]


_kept: list[np.ndarray] = []


def grow(megabytes: int) -> tuple[int, int]:
    _kept.append(np.ones(megabytes << 20, np.uint8))
    return os.getpid(), psutil.Process().memory_info().rss


@pytest.mark.parametrize("count", [0, 1, 2])
def test_results_do_not_depend_on_the_number_of_workers(count: int) -> None:
    with open_workers(count) as workers:
        assert dict(workers.map(square, [(k,) for k in range(9)])) == {k: k * k for k in range(9)}


def test_a_task_whose_worker_was_killed_is_run_again(tmp_path: Path) -> None:
    with open_workers(2) as workers:
        results = dict(workers.map(die_once, [(k, str(tmp_path / "died")) for k in range(6)]))
    assert results == {k: k for k in range(6)}


def test_a_task_that_always_kills_its_worker_ends_the_work_after_those_before_it() -> None:
    results = {}
    with open_workers(2) as workers, pytest.raises(WorkerFailed, match=r"task 5 failed 3 times.*signal SIGKILL"):  # noqa: PT012
        for number, value in workers.map(die_at, [(k, 5) for k in range(9)]):
            results[number] = value
    assert {k: k for k in range(5)}.items() <= results.items()
    assert 5 not in results


def test_a_task_that_raises_is_run_again_in_other_processes_and_its_error_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    results = {}
    with open_workers(2) as workers, pytest.raises(WorkerFailed, match="ZeroDivisionError: oops"):  # noqa: PT012
        for number, value in workers.map(raise_at, [(k, 2, str(log)) for k in range(4)]):
            results[number] = value
    assert {0, 1} <= set(results)
    assert len(set(log.read_text().split())) == 3


def test_a_wm_error_is_raised_without_another_try() -> None:
    with open_workers(1) as workers, pytest.raises(BadData, match="bad"):
        list(workers.map(refuse, [(1,)]))


@pytest.mark.slow
def test_a_hanging_task_is_run_again_elsewhere_and_a_slow_one_with_heartbeats_is_not(tmp_path: Path) -> None:
    with open_workers(2, timeout=3.0) as workers:
        results = dict(workers.map(hang_once, [(k, str(tmp_path / "hung")) for k in range(4)]))
        assert results == {k: k for k in range(4)}
        assert list(workers.map(be_slow, [(400,)])) == [(0, 400)]


def test_a_worker_that_grows_is_replaced() -> None:
    with open_workers(1, max_growth=100 << 20) as workers:
        results = [value for _, value in workers.map(grow, [(30,) for _ in range(12)])]
    assert len({pid for pid, _ in results}) > 1
    start = min(memory for _, memory in results)
    assert max(memory for _, memory in results) < start + (180 << 20)


def test_results_waiting_for_an_earlier_one_stay_few() -> None:
    begun = []
    with open_workers(2) as workers:
        tasks = [(150 if k == 0 else 0,) for k in range(40)]
        for number, _ in workers.map(be_slow, tasks, ahead=4):
            begun.append(number)
    assert begun.index(0) <= 3


def test_a_signal_ends_the_work_and_no_process_is_left() -> None:
    def stop() -> None:
        raise Stopped(signal.SIGTERM)

    with open_workers(1, stop) as workers, pytest.raises(Stopped) as caught:
        list(workers.map(square, [(1,)]))
    assert caught.value.exit_code == 143
    assert not worker_processes()
