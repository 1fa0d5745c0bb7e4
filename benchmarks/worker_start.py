"""Two workers that will play with V, M and C: seconds until both are ready, in a process that has had workers before,
as the stages of a curriculum have; against newly spawned processes."""

import multiprocessing
import statistics
import time
from unittest import mock

from benchmarks.measure import report
from wm.rollouts import agents, process_workers, worker_process


def ready(_: int) -> str:
    """A task: the libraries have been imported when it runs."""
    return agents.VmcAgent.__name__


def start() -> float:
    began = time.perf_counter()
    with process_workers.ProcessWorkers(2, lambda: None, time.monotonic) as pool:
        list(pool.map(ready, [(0,), (1,)]))
    return time.perf_counter() - began


def main() -> None:
    spawned = mock.patch.object(worker_process, "_context", return_value=multiprocessing.get_context("spawn"))
    start()
    pairs = []
    for _ in range(5):
        ours = start()
        with spawned:
            pairs.append((ours, start()))
    ours, reference = (round(statistics.median(column), 2) for column in zip(*pairs, strict=True))
    report("worker_start", ours, reference, 1.0, "s", lower_is_better=True)


if __name__ == "__main__":
    main()
