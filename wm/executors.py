"""Work beyond one process: `concurrent.futures` executors opened from a spec, and a map that survives dead workers.

Tasks are module-level functions with plain arguments, idempotent; results are small. Processes are spawned, never
forked: zarr and torch keep threads that a fork would freeze.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from wm.errors import UsageProblem, WmError, WorkerFailed

Result = TypeVar("Result")
TRIES = 3
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class SerialExecutor(Executor):
    """Runs every task at once, in this process: the oracle the others are compared with."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def open_executor(spec: str) -> Executor:
    """`serial`, or `processes:N`. Raises UsageProblem for anything else."""
    kind, _, count = spec.partition(":")
    if kind == "serial" and not count:
        return SerialExecutor()
    if kind == "processes" and count.isdigit() and int(count) > 0:
        return _processes(int(count))
    raise UsageProblem(f"executor is {spec!r}; expected serial or processes:N.")


def _processes(count: int) -> Executor:
    # One thread a process: several would fight for the same cores. The environment is read when numpy loads.
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=_initialise_worker)
        for future in [pool.submit(_warm) for _ in range(count)]:
            future.add_done_callback(lambda _: None)
        return pool
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _warm() -> None:
    """Makes the pool start its processes while the environment is set."""


def _initialise_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


class Workers:
    """An executor that is opened on first use and again after a worker died.

    `check` is called again and again while waiting; what it raises ends the work.
    """

    def __init__(self, spec: str, check: Callable[[], None]) -> None:
        self.spec, self._check = spec, check
        self._executor: Executor | None = None

    @property
    def count(self) -> int:
        """How many tasks run at the same time."""
        return 1 if self.spec == "serial" else int(self.spec.partition(":")[2])

    def map(
        self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], ahead: int | None = None
    ) -> Iterator[tuple[int, Result]]:
        """Yield (task number, result) as tasks finish, at most `ahead` (default twice the workers) under way.

        A task whose worker died is run again, three times at most; a task that raises is an error at once.
        """
        ahead = ahead or 2 * self.count
        tries = dict.fromkeys(range(len(tasks)), 0)
        waiting = list(reversed(range(len(tasks))))
        running: dict[Future[Result], int] = {}
        try:
            while waiting or running:
                self._check()
                while waiting and len(running) < ahead:
                    number = waiting.pop()
                    tries[number] += 1
                    if tries[number] > TRIES:
                        raise WorkerFailed(f"task {number} killed its worker {TRIES} times (out of memory?).")
                    if self._executor is None:
                        self._executor = open_executor(self.spec)
                    try:
                        running[self._executor.submit(function, *tasks[number])] = number
                    except BrokenProcessPool:
                        waiting.append(number)
                        tries[number] -= 1
                        self._reopen(running, waiting)
                done, _ = wait(running, timeout=0.25, return_when=FIRST_COMPLETED)
                for future in done:
                    number = running.pop(future)
                    try:
                        result = future.result()
                    except BrokenProcessPool:
                        waiting.append(number)
                        self._reopen(running, waiting)
                        break
                    except (WmError, OSError):
                        raise
                    except Exception as error:
                        raise WorkerFailed(f"a worker raised {type(error).__name__}: {error}") from error
                    yield number, result
        finally:
            for future in running:
                future.cancel()

    def _reopen(self, running: "dict[Future[Result], int]", waiting: list[int]) -> None:
        waiting += running.values()
        running.clear()
        self.close()

    def close(self) -> None:
        """End the workers without waiting for what they do."""
        executor, self._executor = self._executor, None
        if executor is None:
            return
        processes = list((getattr(executor, "_processes", None) or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(timeout=5)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
