"""Workers to test with: processes of this machine, a plain executor, and a Dask cluster on this machine."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from wm.episodes.schema import PackedEpisode
from wm.rollouts.collection import Collection, play_episode
from wm.rollouts.executor_workers import ExecutorWorkers
from wm.rollouts.process_workers import ProcessWorkers
from wm.rollouts.task_host import TaskHost, Terms, expected_machine
from wm.rollouts.worker_process import slow_imports


def nothing() -> None:
    pass


def play_badly(bad: int, marker: Path | None, collection: Collection, index: int) -> PackedEpisode:
    """As `play_episode`; the episode `bad` raises, or kills its process unless the marker is there."""
    if index == bad and marker is None:
        raise ValueError("the environment broke")
    if index == bad and marker is not None and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return play_episode(collection, index)


@cache
def _host() -> TaskHost:
    return TaskHost("one", Path(tempfile.mkdtemp()), nothing, print)


def answer_in_pool(terms: Terms, task: bytes, attachments: Mapping[str, Any]) -> bytes:
    return _host().answer(terms, task, attachments)


def pool_of(processes: int) -> ProcessPoolExecutor:
    """A plain executor, whose processes are hosts. They are forked from the server of wm's own workers, which has
    imported what is slow."""
    with ProcessWorkers(1, nothing, time.monotonic) as workers:
        list(workers.map(abs, [(-1,)]))
    return ProcessPoolExecutor(processes, get_context("forkserver"))


def workers_behind(
    pool: ProcessPoolExecutor, count: int, check: Callable[[], None] = nothing, timeout: float = 120.0
) -> ExecutorWorkers:
    """Workers of a connection of their own."""
    name, expected = expected_machine(any_cpu=False)
    terms = Terms(uuid.uuid4().hex, name, timeout, time.monotonic, slow_imports())
    answer = partial(answer_in_pool, terms)
    return ExecutorWorkers(pool, answer, {name: expected}, lambda: count, check, time.monotonic, timeout)


@contextmanager
def local_cluster(workers: int = 3, **how: Any) -> Iterator[Any]:
    """A Dask cluster of this many processes, each with one thread."""
    import logging

    from distributed import LocalCluster

    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL} | how
    with LocalCluster(n_workers=workers, **settings) as cluster:
        yield cluster


@contextmanager
def dask_process(folder: Path, *words: str, before: Sequence[str] = ()) -> "Iterator[subprocess.Popen[bytes]]":
    """A process of Dask's command line, which is killed at the end."""
    command = [*before, sys.executable, "-m", "dask", *words, "--no-dashboard"]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=folder, env=paths, stderr=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.kill()
