"""Playing V + M + C in Pong with two processes against one, steps per second (starting them is not counted)."""

import os
import time
from collections.abc import Callable
from functools import lru_cache

from benchmarks.measure import rates, report
from benchmarks.rollouts import lockstep
from wm.rollouts.process_workers import ProcessWorkers


@lru_cache(maxsize=1)
def _player() -> Callable[[], int]:
    return lockstep("Pong", 8)


def play(_: int) -> int:
    """A task: eight episodes; returns steps. Runs in a worker."""
    return _player()()


def main() -> None:
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("two processes need two cores")

    def runner(workers: ProcessWorkers) -> Callable[[], int]:
        return lambda: sum(steps for _, steps in workers.map(play, [(number,) for number in range(8)]))

    with ProcessWorkers(1, lambda: None, time.monotonic) as one, ProcessWorkers(2, lambda: None, time.monotonic) as two:
        ours, reference, ratio = rates(runner(two), runner(one), seconds=3.0)
    report("rollouts_workers", ours, reference, 1.8, "steps/s", ratio)


if __name__ == "__main__":
    main()
