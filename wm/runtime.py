"""What library code needs of the program it runs in: a clock, a log, progress, a request to stop, and limits.

The library never prints and never reads the clock; a command, a notebook or a test hands it this value. `Runtime()`
runs silently in one process, by the clock of the machine: this module alone knows it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Protocol

from wm.errors import UsageProblem, shown
from wm.ranks import Ranks

LOCAL = "local"  # the executor that is this machine
MOST_WORKERS = 1000  # more would fill the table of processes, in which everybody's programs are
WORKER_TIMEOUT = 120.0  # seconds without a step; the slowest environment takes seconds for one on a loaded machine


class Progress(Protocol):
    """Shows how far a piece of work is."""

    def update(self, done: int, **figures: str) -> None:
        """`done` of the total is done. `figures` are shown with it, the most important ones first."""


class ShowProgress(Protocol):
    """Opens a Progress: `with show(label, total, unit, done) as progress`."""

    def __call__(self, label: str, total: int, unit: str, done: int = 0) -> AbstractContextManager[Progress]: ...


class Tracker(Protocol):
    """Is told the metrics of a training."""

    def add_scalars(self, step: int, values: Mapping[str, float]) -> None:
        """The metrics of a step, by name, as they are written to metrics.jsonl."""

    def close(self) -> None:
        """The training ended, or was interrupted."""


class OpenTracker(Protocol):
    """Decides what is told about an artifact, which is in the making in a folder."""

    def __call__(self, folder: Path, step: int) -> Tracker:
        """Open the Tracker of the artifact's training. It starts or resumes at `step`; metrics.jsonl may have later
        lines still, of what is trained again."""

    def add_image(self, folder: Path, step: int, name: str, png: bytes) -> None:
        """A picture of what was made by that step, as a PNG."""


class _NoProgress:
    def update(self, done: int, **figures: str) -> None:
        pass


@contextmanager
def _show_nothing(label: str, total: int, unit: str, done: int = 0) -> Iterator[Progress]:
    yield _NoProgress()


def _ignore(text: str) -> None:
    pass


def _continue() -> None:
    pass


def _never() -> bool:
    return False


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True)
class Runtime:
    """`clock` returns seconds that never go back. `log` takes a line for people. `stop_requested` says whether a signal
    arrived, `raise_if_stopped` raises Stopped then. `now` is the time of day in UTC, as ISO 8601 has it. `workers`
    processes play (0: this one); one without a heartbeat for `worker_timeout` seconds is replaced. A training that
    exceeds `memory_limit` bytes ends with a checkpoint, and with `memory_snapshots` it records twice what is in memory.
    `track` opens what is told a training's metrics; None: TensorBoard, where it is installed. `ranks` are the processes
    that torchrun started for a training of V or M. With an `executor` such as
    dask:tcp://host:port the workers are those of a cluster, all with this machine's kind of CPU unless `any_cpu` is
    accepted."""

    clock: Callable[[], float] = time.monotonic
    log: Callable[[str], None] = _ignore
    progress: ShowProgress = _show_nothing
    stop_requested: Callable[[], bool] = _never
    raise_if_stopped: Callable[[], None] = _continue
    now: Callable[[], str] = _now
    workers: int = 0
    worker_timeout: float = WORKER_TIMEOUT
    memory_limit: int | None = None
    memory_snapshots: bool = False
    track: OpenTracker | None = None
    ranks: Ranks | None = None
    executor: str = LOCAL
    any_cpu: bool = False

    def __post_init__(self) -> None:
        """Raises UsageProblem for a value of another type, and for a number of processes that is none."""
        if isinstance(self.workers, bool) or not isinstance(self.workers, Integral) or self.workers < 0:
            raise UsageProblem(
                f"workers is {shown(self.workers)}; expected a number of processes, 0 for this one alone."
            )
        if self.workers > MOST_WORKERS:
            raise UsageProblem(f"workers is {shown(self.workers)[:40]}; expected at most {MOST_WORKERS} processes.")
        for name in ("clock", "log", "progress", "stop_requested", "raise_if_stopped", "now"):
            self._require(name, callable(getattr(self, name)), "a function")
        timeout, limit = self.worker_timeout, self.memory_limit
        self._require("worker_timeout", _is(Real, timeout) and timeout > 0, "a number of seconds above 0")
        self._require("memory_limit", limit is None or (_is(Integral, limit) and limit > 0), "bytes above 0, or None")
        for name in ("memory_snapshots", "any_cpu"):
            self._require(name, isinstance(getattr(self, name), bool), "True or False")
        self._require("track", self.track is None or callable(self.track), "a function that opens a tracker, or None")
        self._require("executor", isinstance(self.executor, str), "a text, such as local or dask:tcp://host:port")

    def _require(self, name: str, fits: bool, expected: str) -> None:
        if not fits:
            raise UsageProblem(f"{name} is {shown(getattr(self, name))}; expected {expected}.")


def _is(kind: type, value: object) -> bool:
    """Whether it is a number of this kind, which True and False are not."""
    return isinstance(value, kind) and not isinstance(value, bool)


def or_default(runtime: Runtime | None) -> Runtime:
    """A caller's runtime; silence, in this process, for None. Raises UsageProblem for what is none."""
    if not isinstance(runtime, Runtime | None):
        raise UsageProblem(f"runtime is a {type(runtime).__name__}; expected a wm.Runtime, or None.")
    return runtime or Runtime()
