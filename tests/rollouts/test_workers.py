import importlib
import multiprocessing.process
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from tests.conftest import environment, still_running
from tests.rollouts.clusters import local_cluster, nothing, pool_of, workers_behind
from wm.errors import BadData, Stopped, WorkerFailed
from wm.rollouts import worker_process
from wm.rollouts.process_workers import LONG_EPISODE, ProcessWorkers
from wm.rollouts.worker_process import heartbeat
from wm.rollouts.workers import Workers
from wm.rollouts.workers import open_workers as workers_of
from wm.runtime import Runtime

OpenWorkers = Callable[..., AbstractContextManager[Workers]]


@pytest.fixture(scope="module")
def executor() -> Iterator[str]:
    with local_cluster(2) as cluster:
        yield f"dask:{cluster.scheduler_address}"


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with pool_of(2) as pool:
        yield pool


@pytest.fixture(params=["processes", "executor", pytest.param("dask", marks=pytest.mark.extra("cluster"))])
def open_workers(request: pytest.FixtureRequest) -> OpenWorkers:
    """Opens workers of each kind."""
    if request.param == "processes":
        return processes
    if request.param == "executor":
        return partial(workers_behind, request.getfixturevalue("pool"))
    spec = request.getfixturevalue("executor")

    def of_cluster(
        count: int, check: Callable[[], None] = nothing, timeout: float = 120.0, log: Callable[[str], None] = print
    ) -> AbstractContextManager[Workers]:
        runtime = Runtime(time.monotonic, log, raise_if_stopped=check, worker_timeout=timeout, executor=spec)
        return workers_of(runtime)

    return of_cluster


def processes(count: int, check: Callable[[], None] = nothing, **how: Any) -> ProcessWorkers:
    return ProcessWorkers(count, check, time.monotonic, **how)


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


def crash_with_simulator(pids: str) -> None:
    """The simulator has a session of its own, as those of ML-Agents and CARLA."""
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    with Path(pids).open("a") as file:
        print(subprocess.Popen(words, start_new_session=True).pid, file=file)
    os.kill(os.getpid(), signal.SIGSEGV)


def start_simulator(number: int) -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def play_long(length: int) -> int:
    for _ in range(worker_process._HEARTBEAT_EVERY):
        heartbeat(length)
    return length


def test_an_episode_that_does_not_seem_to_end_is_told_once_with_the_option_that_ends_it() -> None:
    told: list[str] = []
    with processes(1, log=told.append) as workers:
        list(workers.map(play_long, [(LONG_EPISODE - 1,)]))
        assert told == []
        list(workers.map(play_long, [(LONG_EPISODE,)] * 3))
    assert len(told) == 1
    assert "--set max_steps=N to wm collect" in told[0]


_kept: list[np.ndarray] = []


def grow(megabytes: int) -> tuple[int, int]:
    _kept.append(np.ones(megabytes << 20, np.uint8))
    return os.getpid(), psutil.Process().memory_info().rss


@pytest.mark.parametrize("count", [1, 2])
def test_results_do_not_depend_on_the_number_of_workers(open_workers: OpenWorkers, count: int) -> None:
    with open_workers(count) as workers:
        assert dict(workers.map(square, [(k,) for k in range(9)])) == {k: k * k for k in range(9)}


def test_no_more_processes_are_started_than_there_are_tasks() -> None:
    before = set(worker_processes())  # of which those of other tests may end meanwhile
    with processes(4) as workers:
        assert sorted(workers.map(square, [(1,), (2,)])) == [(0, 1), (1, 4)]
        assert len(set(worker_processes()) - before) == 2
        assert len(list(workers.map(square, [(number,) for number in range(3)]))) == 3
        assert len(set(worker_processes()) - before) == 3


def test_without_workers_tasks_run_in_this_process() -> None:
    assert list(processes(0).map(os.getpid, [(), ()])) == [(0, os.getpid()), (1, os.getpid())]


def test_a_task_whose_worker_was_killed_is_run_again(open_workers: OpenWorkers, tmp_path: Path) -> None:
    with open_workers(2) as workers:
        results = dict(workers.map(die_once, [(k, str(tmp_path / "died")) for k in range(6)]))
    assert results == {k: k for k in range(6)}


def test_a_task_that_always_kills_its_worker_ends_the_work_after_those_before_it(open_workers: OpenWorkers) -> None:
    results = {}
    with open_workers(2) as workers, pytest.raises(WorkerFailed, match=r"task 5 failed 3 times.*signal SIGKILL"):  # noqa: PT012
        for number, value in workers.map(die_at, [(k, 5) for k in range(9)]):
            results[number] = value
    assert {k: k for k in range(5)}.items() <= results.items()
    assert 5 not in results


def test_a_task_that_raises_is_run_again_in_other_processes_and_its_error_is_reported(
    open_workers: OpenWorkers, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    results = {}
    with open_workers(2) as workers, pytest.raises(WorkerFailed, match="ZeroDivisionError: oops"):  # noqa: PT012
        for number, value in workers.map(raise_at, [(k, 2, str(log)) for k in range(4)]):
            results[number] = value
    assert {0, 1} <= set(results)
    assert len(set(log.read_text().split())) == 3


def test_a_wm_error_is_raised_without_another_try(open_workers: OpenWorkers) -> None:
    with open_workers(1) as workers, pytest.raises(BadData, match="bad"):
        list(workers.map(refuse, [(1,)]))


@pytest.mark.slow
def test_a_hanging_task_is_run_again_elsewhere_and_a_slow_one_with_heartbeats_is_not(
    open_workers: OpenWorkers, tmp_path: Path
) -> None:
    with open_workers(2, timeout=10.0) as workers:
        results = dict(workers.map(hang_once, [(k, str(tmp_path / "hung")) for k in range(4)]))
        assert results == {k: k for k in range(4)}
        assert list(workers.map(be_slow, [(1200,)])) == [(0, 1200)]  # longer than the timeout


def test_a_worker_may_take_longer_to_start_than_a_step_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import multiprocessing, time\nif multiprocessing.parent_process(): time.sleep(2)\ndef seven(): return 7\n"
    )
    (tmp_path / "slow_to_import.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))
    seven = importlib.import_module("slow_to_import").seven
    with processes(1, timeout=0.5) as workers:
        assert list(workers.map(seven, [()])) == [(0, 7)]


@pytest.mark.parametrize(("step", "sent"), [(0.001, 2), (0.3, 16), (4.0, 64)])
def test_a_heartbeat_is_sent_every_second_where_steps_are_slow(
    step: float, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[Any] = []
    times = (step * number for number in range(1, 65))
    for name, value in (("_pipe", SimpleNamespace(send=messages.append)), ("_clock", lambda: next(times))):
        monkeypatch.setattr(worker_process, name, value)
    monkeypatch.setattr(worker_process, "_heartbeats", 0)
    monkeypatch.setattr(worker_process, "_sent", 0.0)
    for length in range(64):
        heartbeat(length)
    assert sent <= len(messages) <= sent + 2


def test_a_worker_that_grows_is_replaced() -> None:
    with processes(1, max_growth=100 << 20) as workers:
        results = [value for _, value in workers.map(grow, [(30,) for _ in range(12)])]
    assert len({pid for pid, _ in results}) > 1
    start = min(memory for _, memory in results)
    assert max(memory for _, memory in results) < start + (180 << 20)


@pytest.mark.slow
def test_a_process_of_a_cluster_that_grows_is_replaced() -> None:
    with pool_of(1) as pool, workers_behind(pool, 1) as workers:
        results = [value for _, value in workers.map(grow, [(60,) for _ in range(12)])]
    assert len({pid for pid, _ in results}) > 1


def test_results_waiting_for_an_earlier_one_stay_few(open_workers: OpenWorkers) -> None:
    begun = []
    with open_workers(2) as workers:
        tasks = [(150 if k == 0 else 0,) for k in range(40)]
        for number, _ in workers.map(be_slow, tasks, ahead=4):
            begun.append(number)
    assert begun.index(0) <= 3


def test_a_signal_ends_the_work(open_workers: OpenWorkers) -> None:
    signals: list[int] = []

    def stop() -> None:
        if signals:
            raise Stopped(signals[0])

    with open_workers(1, stop) as workers, pytest.raises(Stopped) as caught:  # noqa: PT012
        for _ in workers.map(square, [(1,), (2,)]):
            signals.append(signal.SIGTERM)
    assert caught.value.exit_code == 143


def test_with_their_workers_no_process_is_left() -> None:
    others = set(worker_processes())
    with processes(1) as workers:
        list(workers.map(square, [(1,)]))
        assert set(worker_processes()) - others
    assert not set(worker_processes()) - others


def test_what_an_environment_has_started_ends_with_its_worker() -> None:
    with processes(1) as workers:
        ((_, pid),) = workers.map(start_simulator, [(1,)])
        simulator = psutil.Process(pid)
        assert simulator.is_running()
    assert not still_running([simulator], seconds=5.0)


@pytest.mark.skipif(os.name == "nt", reason="names of signals")
@pytest.mark.parametrize("heard_of", [True, False])
def test_the_simulator_of_a_worker_that_crashes_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard_of: bool
) -> None:
    """Even where the fork server is late with the news."""
    if not heard_of:
        monkeypatch.setattr(multiprocessing.process.BaseProcess, "is_alive", lambda process: True)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pids = tmp_path / "pids"
    with processes(1) as workers, pytest.raises(WorkerFailed, match="ended with signal SIGSEGV"):
        list(workers.map(crash_with_simulator, [(str(pids),)]))
    simulators = [psutil.Process(int(pid)) for pid in pids.read_text().split() if psutil.pid_exists(int(pid))]
    assert not still_running(simulators, seconds=5.0)
    assert other.poll() is None
    other.kill()
    other.wait()


WORK = """
from wm.rollouts.process_workers import ProcessWorkers
with ProcessWorkers(2, lambda: None, time.monotonic) as workers:
    print(list(workers.map(abs, [(-1,), (-2,)])))
"""


def test_a_program_from_the_standard_input_has_workers(tmp_path: Path) -> None:
    program = """
import time
from wm.rollouts.process_workers import ProcessWorkers

with ProcessWorkers(1, lambda: None, time.monotonic) as workers:
    print(list(workers.map(abs, [(-1,)])))
"""
    words, here = [sys.executable, "-"], environment()
    done = subprocess.run(words, input=program, cwd=tmp_path, env=here, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[(0, 1)]\n", "")


COLLECT = "wm.collect('CartPole', episodes=2, size=32, runtime=wm.Runtime(workers=1))"


@pytest.mark.parametrize("begin", [pytest.param(COLLECT, marks=pytest.mark.slow), WORK])
def test_a_program_that_a_worker_would_begin_again_is_told_what_it_lacks(begin: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"import time, wm\n{begin}\n")
    words = [sys.executable, "program.py"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.stderr.count("Traceback") == 1
    sentence = (
        "UsageProblem: a worker runs this program again as it starts; let the program's work stand under `if __name__"
    )
    assert sentence in done.stderr.splitlines()[-1]


def test_it_ends_with_a_command_that_is_killed_too(tmp_path: Path) -> None:
    script = """
import os, signal, subprocess, sys, time
from wm.rollouts.process_workers import ProcessWorkers

def start_simulator(number):
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid

if __name__ == "__main__":
    ((_, pid),) = ProcessWorkers(1, lambda: None, time.monotonic).map(start_simulator, [(1,)])
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    (tmp_path / "command.py").write_text(script)
    words = [sys.executable, str(tmp_path / "command.py")]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as done:
        assert done.stdout is not None
        simulator = psutil.Process(int(done.stdout.readline()))
        assert done.wait(60) == -signal.SIGKILL
    assert not still_running([simulator], seconds=10.0)
