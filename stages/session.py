"""What a command gives its stage: the library's Session, with a Runtime that writes to the console."""

import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from stages import console
from stages.progress import progress
from wm.pipeline import session
from wm.ranks import Ranks
from wm.runtime import LOCAL, WORKER_TIMEOUT, OpenTracker, Runtime


def _unwatched(runtime: Runtime) -> Runtime:
    return runtime


def _typed() -> str:
    return shlex.join(["wm", *sys.argv[1:]])


@dataclass(frozen=True)
class Session(session.Session):
    """One call of a command. `track` names trackers; without, TensorBoard has the metrics where it is installed.
    `watched` returns the Runtime of a training that is watched, as a sweep watches its trials."""

    workers: int = 0
    worker_timeout: float = WORKER_TIMEOUT
    executor: str = LOCAL
    any_cpu: bool = False
    memory_limit: int | None = None
    snapshot: bool = False
    track: tuple[str, ...] = ()
    stop: console.Stop = field(default_factory=console.Stop)
    watched: Callable[[Runtime], Runtime] = _unwatched
    command: str = field(default_factory=_typed)
    ranks: Ranks | None = None

    @property
    def processes(self) -> int:
        """How many processes play: as asked, else one per core."""
        return self.workers or max(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, 1)

    @property
    def runtime(self) -> Runtime:
        """What the library uses of this process."""
        return self.watched(self._own_runtime())

    def _own_runtime(self) -> Runtime:
        return Runtime(
            clock=time.monotonic,
            log=console.say,
            progress=progress,
            stop_requested=lambda: self.stop.signal is not None,
            raise_if_stopped=self.stop.raise_if_stopped,
            workers=self.processes,
            worker_timeout=self.worker_timeout,
            executor=self.executor,
            any_cpu=self.any_cpu,
            memory_limit=self.memory_limit,
            memory_snapshots=self.snapshot,
            track=self._trackers(),
            ranks=self.ranks,
        )

    def _trackers(self) -> OpenTracker | None:
        if not self.track:
            return None
        from wm.telemetry.trackers import Trackers

        return Trackers(self.track, console.say)
