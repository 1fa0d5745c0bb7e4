"""Which task of a map begins next, and when the map ends: the same for every kind of worker."""

from bisect import insort

from wm.errors import WorkerFailed

# One failure may be the machine's; three of the same task are its own.
TRIES = 3


class TaskOrder:
    """Tasks begin in their order, again where they failed, and none `ahead` or more places past the first unfinished
    one. After a task has failed `TRIES` times, those before it are finished and no other begins."""

    def __init__(self, tasks: int, ahead: int) -> None:
        self._ahead = ahead
        self._waiting = list(range(tasks))
        self._unfinished: set[int] = set()
        self._failures: dict[int, int] = {}
        self._failed: tuple[int, str] | None = None

    def begin(self) -> int | None:
        """The number of the task that begins now; None if none may."""
        if not self._waiting:
            return None
        number = self._waiting[0]
        if number >= min(self._unfinished, default=number) + self._ahead or not self._is_needed(number):
            return None
        del self._waiting[0]
        self._unfinished.add(number)
        return number

    def _is_needed(self, number: int) -> bool:
        return self._failed is None or number < self._failed[0]

    @property
    def remaining(self) -> int:
        """How many tasks have no result yet, begun or not."""
        return len(self._waiting) + len(self._unfinished)

    @property
    def open(self) -> bool:
        """Whether a task whose result is wanted has begun and not finished."""
        return any(map(self._is_needed, self._unfinished))

    def finish(self, number: int) -> None:
        """The task has a result."""
        self._unfinished.discard(number)

    def repeat(self, number: int) -> None:
        """The task was lost; it begins again."""
        self._unfinished.discard(number)
        insort(self._waiting, number)

    def fail(self, number: int, why: str, running: bool = False) -> None:
        """The task failed; it begins again, three times at most. Where it is still `running` elsewhere, that counts as
        its next try."""
        self._failures[number] = self._failures.get(number, 0) + 1
        if self._failures[number] < TRIES:
            if not running:
                self.repeat(number)
            return
        self._unfinished.discard(number)
        if self._is_needed(number):
            self._failed = number, why

    def raise_failed(self) -> None:
        """Raise WorkerFailed if a task has failed for good."""
        if self._failed is not None:
            raise WorkerFailed(self._failed[0], f"failed {TRIES} times; the last time {self._failed[1]}.")
