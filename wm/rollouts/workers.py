"""Work beyond one process: a map over processes that survives workers that die, hang or raise.

Tasks are module-level functions with plain arguments, idempotent; results are small. This process is never forked:
torch keeps threads that a fork would freeze. Each worker has a pipe of its own, so it is known which task was whose
when a worker is lost, and only that worker is replaced; `concurrent.futures` breaks its whole pool instead.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import Any, TypeVar

import psutil

from wm.errors import WmError, WorkerFailed
from wm.runtime import Runtime
from wm.telemetry.malloc import trim

Result = TypeVar("Result")
TRIES = 3
WORKER_TIMEOUT = 120.0  # seconds without a heartbeat after which a task counts as hanging
# Bytes by which a worker may grow before it is replaced between two tasks. Box2D's binding leaks 1.6 kB per LunarLander
# episode and 36 bytes per spark: two workers grew from 370 to 693 MB in 5.8 M steps.
MAX_GROWTH = 300 << 20
TRIM_ABOVE = 64 << 20  # bytes of growth after which malloc returns free memory, which takes up to 40 ms
_HEARTBEAT_EVERY = 32
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SERVER, FORKED, SPAWNED = 200_000_000, 170_000_000, 450_000_000  # bytes of each with torch, V, M, C and environments
_SLOW_TO_IMPORT = ("numpy", "torch", "wm.rollouts.agents")
_pipe: Any = None  # a worker's end of its pipe
_heartbeats = 0


def heartbeat() -> None:
    """Report from within a task that it is alive: call it at every step. Does nothing outside a worker."""
    global _heartbeats
    _heartbeats += 1
    if _pipe is not None and _heartbeats % _HEARTBEAT_EVERY == 0:
        _pipe.send(("alive", None, 0))


def _serve(pipe: Any) -> None:
    """A worker's loop: receive a task, run it, reply."""
    global _pipe
    _pipe = pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    process, trimmed = psutil.Process(), 0  # bytes after the last trim
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            reply = ("done", function(*arguments))
            pickle.dumps(reply)
        except WmError as error:
            reply = ("refused", error)
        except Exception as error:
            reply = ("raised", f"{type(error).__name__}: {error}")
        memory = process.memory_info().rss
        if memory > trimmed + TRIM_ABOVE and trim():
            memory = trimmed = process.memory_info().rss
        pipe.send((*reply, memory))


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _context() -> Any:
    """How workers start. On Linux they are forked from a server that has imported the slow packages and runs nothing:
    a worker then starts at once and shares that memory. Elsewhere each is spawned.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in _SLOW_TO_IMPORT if name in sys.modules])
    return context


def playing_memory(count: int) -> int:
    """Bytes of `count` workers that play with V, M and C, and of their fork server."""
    return SERVER + count * FORKED if sys.platform == "linux" else count * SPAWNED


class _Worker:
    """One process and the pipe to it. `task` is the number of its current task, None when idle."""

    def __init__(self) -> None:
        context = _context()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        # One thread a process: several would fight for the same cores. The environment is read when numpy loads.
        previous = {name: os.environ.get(name) for name in _THREADS}
        os.environ.update(dict.fromkeys(_THREADS, "1"))
        try:
            self.process.start()
        finally:
            for name, value in previous.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        theirs.close()
        self.task: int | None = None
        self.last_message = 0.0
        self.memory = 0  # after its first task
        self.grown = 0

    def messages(self) -> list[tuple[str, Any, int]]:
        """(kind, value, memory) of its new messages; the last is ("failed", reason) if its process has ended."""
        messages: list[tuple[str, Any, int]] = []
        try:
            while self.pipe.poll():
                messages.append(self.pipe.recv())
        except (EOFError, OSError):
            self.process.join(timeout=5)
            code = self.process.exitcode
            cause = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
            messages.append(("failed", f"its worker ended with {cause}", 0))
        return messages

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join(timeout=5)
        self.pipe.close()


class Workers:
    """`count` processes that are started on first use (0: tasks run in this process, one after the other).

    `check` is called at least four times a second; an error that it raises ends the map. `clock` returns seconds. A
    worker without a heartbeat for `timeout` seconds is replaced, as is one that has grown by `max_growth` bytes.
    """

    def __init__(
        self,
        count: int,
        check: Callable[[], None],
        clock: Callable[[], float],
        timeout: float = WORKER_TIMEOUT,
        max_growth: int = MAX_GROWTH,
    ) -> None:
        self._count, self._check, self._clock = count, check, clock
        self._timeout, self._max_growth = timeout, max_growth
        self._workers: list[_Worker] = []

    @property
    def count(self) -> int:
        """Number of tasks that run at the same time."""
        return max(self._count, 1)

    def map(
        self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], ahead: int = 0
    ) -> Iterator[tuple[int, Result]]:
        """Yield (task number, result) as tasks finish. No task begins `ahead` (0: eight a worker) or more places past
        the first unfinished one, so that results waiting for their turn stay few.

        A task whose worker died or hung, or that raised, runs again in another process, three times at most; then the
        tasks before it are finished and WorkerFailed says what happened. A WmError is raised at once.
        """
        if not self._count:
            for position, arguments in enumerate(tasks):
                self._check()
                yield position, function(*arguments)
            return
        ahead = ahead or 8 * self._count
        waiting, failures = list(range(len(tasks))), dict.fromkeys(range(len(tasks)), 0)
        unfinished: set[int] = set()
        failed: tuple[int, str] | None = None

        def may_begin(number: int) -> bool:
            return number < min([number + 1, *unfinished]) + ahead and (failed is None or number < failed[0])

        try:
            while True:
                self._check()
                for worker in self._idle():
                    if not waiting or not may_begin(waiting[0]):
                        break
                    self._begin(worker, waiting.pop(0), function, tasks, unfinished)
                busy = [worker for worker in self._workers if worker.task is not None]
                if not any(failed is None or worker.task < failed[0] for worker in busy):  # type: ignore[operator]
                    break
                for worker, kind, value in self._receive(busy):
                    number = worker.task
                    if number is None:  # it replied and then died
                        if worker in self._workers:
                            self._replace(worker)
                        continue
                    if kind in ("done", "refused"):
                        worker.task = None
                        unfinished.discard(number)
                        if worker.grown > self._max_growth:
                            self._replace(worker)
                        if kind == "refused":
                            raise value
                        yield number, value
                        continue
                    self._replace(worker)
                    unfinished.discard(number)
                    failures[number] += 1
                    if failures[number] < TRIES:
                        waiting = sorted([*waiting, number])
                    elif failed is None or number < failed[0]:
                        failed = number, value
        finally:
            for worker in [worker for worker in self._workers if worker.task is not None]:
                self._replace(worker)
        if failed is not None:
            raise WorkerFailed(failed[0], f"failed {TRIES} times; the last time {failed[1]}.")

    def _idle(self) -> list[_Worker]:
        """Workers without a task; new ones as long as there are too few."""
        idle = [worker for worker in self._workers if worker.task is None]
        while len(self._workers) < self._count:
            self._workers.append(_Worker())
            idle.append(self._workers[-1])
        return idle

    def _begin(
        self, worker: _Worker, number: int, function: Any, tasks: Sequence[tuple[Any, ...]], unfinished: set[int]
    ) -> None:
        worker.task, worker.last_message = number, self._clock()
        unfinished.add(number)
        try:
            worker.pipe.send((function, tasks[number]))
        except OSError:
            return  # the worker has died; `_receive` reports it

    def _receive(self, busy: list[_Worker]) -> Iterator[tuple[_Worker, str, Any]]:
        """(worker, kind, value) with kind done, refused, raised or failed. Waits up to 0.25 s for the first message."""
        began = self._clock()
        connection.wait([worker.pipe for worker in busy], timeout=0.25)
        paused = max(self._clock() - began - 1.0, 0.0)  # this process was stopped or the machine suspended
        for worker in busy:
            worker.last_message += paused
            for kind, value, memory in worker.messages():
                worker.last_message = self._clock()
                if kind == "alive":
                    continue
                worker.memory = worker.memory or memory
                worker.grown = memory - worker.memory
                yield worker, kind, value
            if worker.task is not None and self._clock() - worker.last_message > self._timeout:
                yield worker, "failed", f"its worker sent no heartbeat for {self._timeout:.0f} s"

    def _replace(self, worker: _Worker) -> None:
        """End a worker; `_idle` starts another."""
        self._workers.remove(worker)
        worker.end()

    def close(self) -> None:
        """End the workers without waiting for their tasks."""
        while self._workers:
            self._replace(self._workers[0])

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_workers(runtime: Runtime) -> Workers:
    """Worker processes for a program: they end when it is asked to stop."""
    return Workers(runtime.workers, runtime.raise_if_stopped, runtime.clock, runtime.worker_timeout)
