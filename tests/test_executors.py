import os
import signal
from pathlib import Path

import pytest

from wm.errors import BadData, Stopped, UsageProblem, WorkerFailed
from wm.executors import Workers, open_executor


def nothing() -> None:
    pass


def square(number: int) -> int:
    return number * number


def die_once(number: int, marker: str) -> int:
    if number == 3 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_always(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def refuse(number: int) -> int:
    raise BadData("bad")


def break_down(number: int) -> int:
    raise ZeroDivisionError("oops")


@pytest.mark.parametrize("spec", ["serial", "processes:2"])
def test_results_do_not_depend_on_the_executor(spec: str) -> None:
    with Workers(spec, nothing) as workers:
        assert dict(workers.map(square, [(k,) for k in range(9)])) == {k: k * k for k in range(9)}


def test_a_task_whose_worker_was_killed_is_run_again(tmp_path: Path) -> None:
    with Workers("processes:2", nothing) as workers:
        found = dict(workers.map(die_once, [(k, str(tmp_path / "died")) for k in range(6)]))
    assert found == {k: k for k in range(6)}


def test_a_task_that_always_kills_its_worker_ends_in_an_error_not_a_hang() -> None:
    with Workers("processes:1", nothing) as workers, pytest.raises(WorkerFailed, match="killed its worker 3 times"):
        list(workers.map(die_always, [(1,)]))


def test_a_workers_error_arrives_here() -> None:
    with Workers("processes:1", nothing) as workers:
        with pytest.raises(BadData, match="bad"):
            list(workers.map(refuse, [(1,)]))
        with pytest.raises(WorkerFailed, match="ZeroDivisionError: oops"):
            list(workers.map(break_down, [(1,)]))


def test_a_signal_ends_the_work() -> None:
    def stop() -> None:
        raise Stopped(signal.SIGTERM)

    with Workers("processes:1", stop) as workers, pytest.raises(Stopped) as caught:
        list(workers.map(square, [(1,)]))
    assert caught.value.exit_code == 143


def test_an_unknown_spec_is_refused() -> None:
    with pytest.raises(UsageProblem, match="expected serial or processes:N"):
        open_executor("threads")
