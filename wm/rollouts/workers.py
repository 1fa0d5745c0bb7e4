"""Work beyond one process: a map over processes that survives workers that die, hang or raise.

Tasks are module-level functions with plain arguments, idempotent; results are small. Each worker has a pipe of its own,
so it is known which task was whose when a worker is lost, and only that worker is replaced; `concurrent.futures` breaks
its whole pool instead.
"""

from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import Any, TypeVar

from wm.errors import WorkerFailed
from wm.rollouts.worker_process import Worker
from wm.runtime import WORKER_TIMEOUT, Runtime

Result = TypeVar("Result")
TRIES = 3
# Bytes by which a worker may grow before it is replaced between two tasks. Box2D's binding leaks 1.6 kB per LunarLander
# episode and 36 bytes per spark: two workers grew from 370 to 693 MB in 5.8 M steps.
MAX_GROWTH = 300 << 20
LONG_EPISODE = 30_000  # actions. Atari's longest episodes have 27,000: 108,000 frames, of which 4 are skipped


def _ignore(text: str) -> None:
    pass


class Workers:
    """`count` processes that are started on first use (0: tasks run in this process, one after the other).

    `check` is called at least four times a second; an error that it raises ends the map. `clock` returns seconds. A
    worker without a heartbeat for `timeout` seconds is replaced, as is one that has grown by `max_growth` bytes. `log`
    is told once of an episode that does not seem to end.
    """

    def __init__(
        self,
        count: int,
        check: Callable[[], None],
        clock: Callable[[], float],
        timeout: float = WORKER_TIMEOUT,
        max_growth: int = MAX_GROWTH,
        log: Callable[[str], None] = _ignore,
    ) -> None:
        self._count, self._check, self._clock = count, check, clock
        self._timeout, self._max_growth = timeout, max_growth
        self._log, self._warned = log, False
        self._workers: list[Worker] = []

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

    def _idle(self) -> list[Worker]:
        """Workers without a task; new ones as long as there are too few."""
        idle = [worker for worker in self._workers if worker.task is None]
        while len(self._workers) < self._count:
            self._workers.append(Worker())
            idle.append(self._workers[-1])
        return idle

    def _begin(
        self, worker: Worker, number: int, function: Any, tasks: Sequence[tuple[Any, ...]], unfinished: set[int]
    ) -> None:
        worker.task, worker.last_message = number, self._clock()
        unfinished.add(number)
        try:
            worker.pipe.send((function, tasks[number]))
        except OSError:
            return  # the worker has died; `_receive` reports it

    def _receive(self, busy: list[Worker]) -> Iterator[tuple[Worker, str, Any]]:
        """(worker, kind, value) with kind done, refused, raised or failed. Waits up to 0.25 s for the first message."""
        began = self._clock()
        connection.wait([worker.pipe for worker in busy], timeout=0.25)
        paused = max(self._clock() - began - 1.0, 0.0)  # this process was stopped or the machine suspended
        for worker in busy:
            worker.last_message += paused
            for kind, value, memory in worker.messages():
                worker.last_message = self._clock()
                if kind == "alive":
                    self._watch_length(value)
                    continue
                worker.memory = worker.memory or memory
                worker.grown = memory - worker.memory
                yield worker, kind, value
            if worker.task is not None and self._clock() - worker.last_message > self._timeout:
                yield worker, "failed", f"its worker sent no heartbeat for {self._timeout:.0f} s"

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

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_workers(runtime: Runtime) -> Workers:
    """Worker processes for a program: they end when it is asked to stop."""
    check, log = runtime.raise_if_stopped, runtime.log
    return Workers(runtime.workers, check, runtime.clock, runtime.worker_timeout, log=log)
