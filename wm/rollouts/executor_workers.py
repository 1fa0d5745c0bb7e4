"""Workers behind any `concurrent.futures.Executor`, such as that of a Dask cluster.

A task may be lost with its worker, or be late: stopped machines and links that are down raise no error. So a late task
is asked again, and the first answer counts. Tasks are functions of their arguments, so both answers are the same.
"""

import pickle
import queue
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from typing import Any, TypeVar

from wm.rollouts.artifact_transfer import TaskPickler
from wm.rollouts.task_order import TRIES, TaskOrder
from wm.runtime import WORKER_TIMEOUT

Result = TypeVar("Result")
# A task is late after this multiple of the longest one so far; where workers are idle, of the median. 1 in 100 workers
# being three times slower, asking again at twice the median ended a generation on 1,000 of them in 6.2 s and not 9.9 s.
LATE, LATE_WHEN_IDLE = 3.0, 2.0
SOONEST = 5.0  # seconds: before that no task is late, as the first one of a worker imports torch
AHEAD = 512  # tasks that may begin early, beyond one a worker: their episodes are in memory until it is their turn


def _anywhere(number: int) -> dict[str, Any]:
    return {}


def _nothing() -> None:
    pass


class ExecutorWorkers:
    """As Workers. `answer(task, attachments)` runs in the executor: a module-level function, or a partial of one, which
    returns what `TaskHost.answer` does. `attachments` are those that are no artifacts, by name. `count` says how many
    tasks can run at once by now. `place` gives what `submit` is told of where task number k runs, so that it finds the
    environments of the one before. `release` ends the connection."""

    def __init__(
        self,
        executor: Executor,
        answer: Callable[..., bytes],
        attachments: Mapping[str, Any],
        count: Callable[[], int],
        check: Callable[[], None],
        clock: Callable[[], float],
        timeout: float = WORKER_TIMEOUT,
        place: Callable[[int], Mapping[str, Any]] = _anywhere,
        release: Callable[[], None] = _nothing,
    ) -> None:
        self.executor, self.answer, self.attachments = executor, answer, attachments
        self.clock, self.timeout, self.place = clock, timeout, place
        self.pickler = TaskPickler()
        self._count, self._check, self._release = count, check, release

    @property
    def count(self) -> int:
        """Number of tasks that run at the same time."""
        return max(self._count(), 1)

    @property
    def share(self) -> bool:
        """As Workers: they may differ in speed, come and go."""
        return False

    def map(
        self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], ahead: int = 0, episodes: int = 1
    ) -> Iterator[tuple[int, Result]]:
        """As Workers; `ahead` is by default eight a worker, or one and 512 more."""
        order = TaskOrder(len(tasks), ahead or min(8 * self.count, self.count + AHEAD))
        sent = _AskedTasks(self, function, tasks, self.timeout * episodes)
        try:
            while True:
                self._check()
                sent.begin(order)
                if not order.open:
                    break
                for number, kind, value in sent.replies():
                    if kind == "lost":
                        order.repeat(number)
                    elif kind == "failed":
                        order.fail(number, value, sent.running(number))
                    elif kind == "refused":
                        raise value
                    else:
                        order.finish(number)
                        yield number, value
        finally:
            sent.cancel()
        order.raise_failed()

    def close(self) -> None:
        """Do not wait for tasks."""
        self._release()

    def __enter__(self) -> "ExecutorWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Asked:
    """A task that was sent at `began`, with the attachments of these names."""

    number: int
    began: float
    attached: frozenset[str]


class _AskedTasks:
    """The tasks of a map that were sent and have not answered, the oldest first. One that has not answered for
    `timeout` seconds may be lost."""

    def __init__(
        self, workers: ExecutorWorkers, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], timeout: float
    ) -> None:
        self._workers, self._function, self._tasks, self._timeout = workers, function, tasks, timeout
        self._sent: dict[Future[bytes], _Asked] = {}
        self._answered = queue.SimpleQueue[Future[bytes]]()
        self._durations: list[float] = []

    def begin(self, order: TaskOrder) -> None:
        """Send as many tasks as workers are free: late ones, those that begin, and again what the others wait for."""
        for _ in range(self._free()):
            number = self._late(LATE, max)
            if number is None:
                number = order.begin()
            if number is None:
                number = self._late(LATE_WHEN_IDLE, statistics.median)
            if number is None:
                return
            self._send(number, frozenset())

    def _free(self) -> int:
        """A task that has not answered for the whole timeout is thought to occupy no worker any more."""
        oldest = self._workers.clock() - self._timeout
        return self._workers.count - sum(task.began > oldest for task in self._sent.values())

    def _late(self, times: float, typical: Callable[[list[float]], float]) -> int | None:
        """The task that is asked again: the oldest that takes `times` as long as is typical, and was asked less than
        three times."""
        now, newest = self._workers.clock(), dict[int, float]()
        if not self._sent or now - next(iter(self._sent.values())).began <= SOONEST:
            return None
        limit = max(times * typical(self._durations), SOONEST) if self._durations else self._timeout
        numbers = [task.number for task in self._sent.values()]
        newest = {task.number: task.began for task in self._sent.values()}
        for number, began in newest.items():
            if now - began > limit and numbers.count(number) < TRIES:
                return number
        return None

    def _send(self, number: int, attached: frozenset[str]) -> None:
        workers = self._workers
        files = {name: workers.attachments.get(name) or workers.pickler.files(name) for name in attached}
        task = workers.pickler.dump(self._function, self._tasks[number])
        # PPO's slots go back to the worker that has their environments; more tasks than workers would queue there.
        where = workers.place(number) if not self.running(number) and len(self._tasks) <= workers.count else {}
        future = workers.executor.submit(workers.answer, task, files, **where)
        self._sent[future] = _Asked(number, workers.clock(), attached)
        future.add_done_callback(self._answered.put)

    def replies(self) -> Iterator[tuple[int, str, Any]]:
        """(task number, kind, value) with kind done, refused, failed or lost. Waits up to 0.25 s for the first."""
        # Seconds of the first wait; it only bounds how late a stop is noticed.
        wait = 0.25
        while True:
            try:
                future = self._answered.get(timeout=wait) if wait else self._answered.get_nowait()
            except queue.Empty:
                # Nothing more has been answered.
                return
            wait = 0.0
            task = self._sent.pop(future, None)
            if task is None:
                continue  # another answer came first
            kind, value = _reply(future)
            if kind == "lacks" and not task.attached.issuperset(value):
                self._send(task.number, task.attached.union(value))
            elif kind in ("done", "refused"):
                self._durations.append(self._workers.clock() - task.began)
                self._forget(task.number)
                yield task.number, kind, value
            elif kind != "lost":
                yield task.number, "failed", value
            elif not self.running(task.number):
                yield task.number, "lost", value

    def running(self, number: int) -> bool:
        """Whether an answer to this task may still come."""
        return any(task.number == number for task in self._sent.values())

    def _forget(self, number: int) -> None:
        for future in [future for future, task in self._sent.items() if task.number == number]:
            del self._sent[future]
            future.cancel()

    def cancel(self) -> None:
        """Wait for none of them."""
        for future in self._sent:
            future.cancel()
        self._sent.clear()


def _reply(future: "Future[bytes]") -> tuple[str, Any]:
    """(kind, value) of an answer."""
    try:
        kind, value = pickle.loads(future.result())
        return kind, pickle.loads(value) if kind == "done" else value
    except CancelledError:
        return "lost", "its worker was lost"
    except Exception as error:  # of the cluster, which gave the task up or could not run it
        return "failed", f"its worker answered {type(error).__name__}: {' '.join(str(error).split())[:300]}"
