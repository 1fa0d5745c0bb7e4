"""Workers that are processes of this machine.

Each has a pipe of its own, so it is known which task was whose when a worker is lost, and only that worker is replaced;
`concurrent.futures` breaks its whole pool instead.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import Any, TypeVar

from wm.envs.registration import one_line
from wm.errors import WmError, WorkerFailed, ran_out_of_memory
from wm.rollouts.task_order import TaskOrder
from wm.rollouts.worker_process import Worker
from wm.runtime import WORKER_TIMEOUT

Result = TypeVar("Result")
# Bytes by which a worker may grow before it is replaced between two tasks. Box2D's binding leaks 1.6 kB per LunarLander
# episode and 36 bytes per spark: two workers grew from 370 to 693 MB in 5.8 M steps.
MAX_GROWTH = 300 << 20
_HERE = threading.RLock()  # a process keeps its environments from task to task, and threads would step the same ones
LONG_EPISODE = 30_000  # actions. Atari's longest episodes have 27,000: 108,000 frames, of which 4 are skipped


def _ignore(text: str) -> None:
    pass


class ProcessWorkers:
    """As Workers: `count` processes, or as many as there are tasks for, that are started on first use (0: tasks run in
    this process, one after the other, also those of several threads).

    `check` is called at least four times a second; an error that it raises ends the map. `clock` returns seconds. A
    worker without a heartbeat for `timeout` seconds is replaced, as is one that has grown by `max_growth` bytes. `log`
    is told once of an episode that does not seem to end. What workers warn of is warned of here, once. `preload` is as
    for Worker.
    """

    def __init__(
        self,
        count: int,
        check: Callable[[], None],
        clock: Callable[[], float],
        timeout: float = WORKER_TIMEOUT,
        max_growth: int = MAX_GROWTH,
        log: Callable[[str], None] = _ignore,
        preload: list[str] | None = None,
    ) -> None:
        self._count, self._check, self._clock = count, check, clock
        self._timeout, self._max_growth = timeout, max_growth
        self._log, self._warned, self._preload = log, False, preload
        self._warnings: dict[Any, Any] = {}  # of all workers, for Python to show each once
        self._workers: list[Worker] = []

    @property
    def count(self) -> int:
        """Number of tasks that run at the same time."""
        return max(self._count, 1)

    @property
    def share(self) -> bool:
        """As Workers: a worker of this machine plays on without a break in its share, and sending costs nothing."""
        return True

    def map(
        self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], ahead: int = 0, episodes: int = 1
    ) -> Iterator[tuple[int, Result]]:
        """As Workers; `ahead` is eight a worker if it is 0. Heartbeats tell how a task is, whatever its length."""
        if not self._count:
            for position, arguments in enumerate(tasks):
                self._check()
                yield position, self._run_here(position, function, arguments)
            return
        # Eight a worker: enough that none waits, and few enough that the results of later tasks fit memory.
        order = TaskOrder(len(tasks), ahead or 8 * self._count)
        try:
            while True:
                self._check()
                for worker in self._idle(order.remaining):
                    if (number := order.begin()) is None:
                        break
                    self._begin(worker, number, function, tasks[number])
                if not order.open:
                    break
                for number, kind, value in self._replies():
                    if kind == "failed":
                        order.fail(number, value)
                        continue
                    order.finish(number)
                    if kind == "refused":
                        raise value
                    yield number, value
        finally:
            # A caller that stops early leaves tasks behind; their workers cannot be asked to drop them.
            for worker in [worker for worker in self._workers if worker.task is not None]:
                self._replace(worker)
        order.raise_failed()

    def _run_here(self, position: int, function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
        """Run a task in this process. What an environment raises is a WorkerFailed, as it is of a worker."""
        try:
            with _HERE:
                return function(*arguments)
        except (WmError, OSError):
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, Exception) and ran_out_of_memory(error):
                raise
            raise WorkerFailed(position, f"raised {one_line(error)}.") from error

    def run_once(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
        """Run one task in a worker, and say what came of it: ("done", result), ("refused", a WmError) or ("failed",
        what happened)."""
        try:
            self._check()
            self._begin(self._idle(1)[0], 0, function, arguments)
            while True:
                for _, kind, value in self._replies():
                    return kind, value
                self._check()
        finally:
            for worker in [worker for worker in self._workers if worker.task is not None]:
                self._replace(worker)

    def _replies(self) -> Iterator[tuple[int, str, Any]]:
        """(task number, kind, value) with kind done, refused or failed, of the workers that have replied by now."""
        for worker, kind, value in self._receive([worker for worker in self._workers if worker.task is not None]):
            number, worker.task = worker.task, None
            if worker not in self._workers:
                continue
            if kind in ("raised", "failed") or worker.grown > self._max_growth:
                self._replace(worker)
            if number is not None:  # else it replied and then died
                yield number, "failed" if kind == "raised" else kind, value

    def _idle(self, tasks: int) -> list[Worker]:
        """Workers without a task; new ones as long as there are too few for so many tasks."""
        idle = [worker for worker in self._workers if worker.task is None]
        while len(self._workers) < min(self._count, tasks):
            self._workers.append(Worker(self._preload))
            idle.append(self._workers[-1])
        return idle

    def _begin(self, worker: Worker, number: int, function: Any, arguments: tuple[Any, ...]) -> None:
        worker.task, worker.last_message = number, self._clock()
        try:
            worker.pipe.send((function, arguments))
        except OSError:
            # Swallowed here, because `_receive` tells why it died.
            return  # the worker has died; `_receive` reports it

    def _receive(self, busy: list[Worker]) -> Iterator[tuple[Worker, str, Any]]:
        """(worker, kind, value) with kind done, refused, raised or failed. Waits up to 0.25 s for the first message."""
        began = self._clock()
        # Seconds; any value of that size would do. It only bounds how late a stop is noticed.
        connection.wait([worker.pipe for worker in busy], timeout=0.25)
        paused = max(self._clock() - began - 1.0, 0.0)  # this process was stopped or the machine suspended
        for worker in busy:
            worker.last_message += paused
            for kind, value, memory in worker.messages():
                worker.started, worker.last_message = True, self._clock()
                if kind == "alive":
                    self._watch_length(value)
                    continue
                if kind == "warned":
                    text, category, file, line = value
                    warnings.warn_explicit(text, category, file, line, registry=self._warnings)
                    continue
                worker.memory = worker.memory or memory
                worker.grown = memory - worker.memory
                yield worker, kind, value
            # A process that starts on a busy machine imports for longer than a step may take.
            timeout = self._timeout if worker.started else max(self._timeout, WORKER_TIMEOUT)
            if worker.task is not None and self._clock() - worker.last_message > timeout:
                yield worker, "failed", f"its worker sent no heartbeat for {timeout:.0f} s"

    def _watch_length(self, length: int) -> None:
        if length >= LONG_EPISODE and not self._warned:
            self._warned = True
            self._log(
                f"an episode has had {length:,} steps and goes on; an environment without an end needs a limit: give "
                "--set max_steps=N to wm collect, and later stages keep it"
            )

    def _replace(self, worker: Worker) -> None:
        """End a worker; `_idle` starts another."""
        self._workers.remove(worker)
        worker.end()

    def close(self) -> None:
        """End the workers without waiting for their tasks."""
        while self._workers:
            self._replace(self._workers[0])

    def __enter__(self) -> "ProcessWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
