"""Work beyond one process: a map over workers that survives those that die, hang or raise.

Tasks are module-level functions with plain arguments, idempotent; results are small. Workers are processes of this
machine (wm/rollouts/process_workers.py) or of a cluster (wm/rollouts/dask_cluster.py). Results are the same from both.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from wm.rollouts.process_workers import ProcessWorkers
from wm.runtime import LOCAL, Runtime

Result = TypeVar("Result")


class Workers(Protocol):
    """Workers, as what plays episodes sees them. `with` ends them, or their connection."""

    @property
    def count(self) -> int:
        """Number of tasks that run at the same time."""

    @property
    def share(self) -> bool:
        """Whether a task is best an equal share of all jobs. Otherwise tasks are small, with the candidates they play
        alone: whoever is ready takes the next, and little is sent."""

    def map(
        self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], ahead: int = 0, episodes: int = 1
    ) -> Iterator[tuple[int, Result]]:
        """Yield (task number, result) as tasks finish. No task begins `ahead` (0: a number by count) or more places
        past the first unfinished one, so that results waiting for their turn stay few. A task of several `episodes`
        may take as many times as long before it is thought lost.

        A task whose worker died or hung, or that raised, runs again in another process, three times at most; then the
        tasks before it are finished and WorkerFailed says what happened. A WmError is raised at once.
        """

    def close(self) -> None:
        """End without waiting for tasks."""

    def __enter__(self) -> "Workers": ...

    def __exit__(self, *_: object) -> None: ...


def open_workers(runtime: Runtime) -> Workers:
    """The workers of a program: processes that end when it is asked to stop, or those of its cluster. Raises
    MissingPackage, Unreachable, and RecipeMismatch for a cluster whose results would differ."""
    if runtime.executor != LOCAL:
        from wm.rollouts.dask_cluster import open_cluster

        return open_cluster(runtime)
    check, log = runtime.raise_if_stopped, runtime.log
    return ProcessWorkers(runtime.workers, check, runtime.clock, runtime.worker_timeout, log=log)
