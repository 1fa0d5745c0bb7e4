"""Checks the memory of a training, and says when it must end before the machine swaps."""

import shlex
from collections import deque
from pathlib import Path
from typing import Any

from wm.runtime import Runtime
from wm.telemetry import heap_snapshot
from wm.telemetry.trend import column_trend
from wm.telemetry.usage import anonymous_memory
from wm.units import format_size

MAX_LINES = 200  # of metrics, that the slope is estimated from
MIN_LINES = 60  # below which there is no estimate
CHECK_EVERY = 20  # lines
MAX_SHARE = 0.5  # of the free memory that the rest of the training may need at the present slope
SNAPSHOTS_AT = (0.25, 0.95)  # shares of the training


def memory_exceeded(runtime: Runtime) -> bool:
    """Whether this process alone takes more than the limit."""
    return runtime.memory_limit is not None and anonymous_memory() > runtime.memory_limit


class MemoryGuard:
    """Checks every line of metrics. With `memory_snapshots` it also writes two heap snapshots, after a quarter of the
    training and near its end."""

    def __init__(self, runtime: Runtime, folder: Path, steps: int) -> None:
        self._log, self._limit, self._folder, self._steps = runtime.log, runtime.memory_limit, folder, steps
        self._lines: deque[dict[str, Any]] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._snapshots = deque(SNAPSHOTS_AT if runtime.memory_snapshots else ())
        if runtime.memory_snapshots:
            heap_snapshot.record_allocations()

    def check(self, line: dict[str, Any], others: int = 0) -> str:
        """Why training has to end now, in one sentence; empty if it need not. `others` is the number of processes that
        train with this one and exceed the limit."""
        self._lines.append(line)
        self._count += 1
        if self._snapshots and line["step"] >= self._snapshots[0] * self._steps:
            self._snapshots.popleft()
            heap_snapshot.save(self._folder, int(line["step"]))
            self._log(f"wrote the heap snapshot of step {line['step']} to {self._folder}")
        used = (line["rss_anon_mb"] + line["children_mb"]) * 1e6
        if self._limit is not None and used > self._limit:
            return (
                f"{format_size(used)} of memory are in use at step {line['step']}, more than --memory-limit "
                f"{format_size(self._limit)}; `{self._command}` shows what grew. The same command resumes with "
                "a higher limit."
            )
        if self._limit is not None and others:
            return (
                f"of the other processes of torchrun, {others} exceed --memory-limit {format_size(self._limit)} at "
                f"step {line['step']}. The same command resumes with a higher limit."
            )
        return self._check_growth(line) if self._count % CHECK_EVERY == 0 and len(self._lines) >= MIN_LINES else ""

    @property
    def _command(self) -> str:
        return f"wm memory {shlex.quote(str(self._folder.parent))}"

    def _check_growth(self, line: dict[str, Any]) -> str:
        # Without the oldest fifth: at the start of a training buffers still fill.
        recent = list(self._lines)[len(self._lines) // 5 :]
        # Lines after a trim alone: between them malloc keeps up to 200 MB.
        trend = column_trend([line for line in recent if line.get("trimmed", 1)], "unexplained_mb")
        if trend is None or not trend.rises:
            return ""
        needed = trend.slope * (self._steps - line["step"])
        if needed < MAX_SHARE * line["memory_free_mb"]:
            return ""
        return (
            f"memory grows by {1000 * trend.slope:.1f} kB a step that no buffer explains. At step {line['step']} "
            f"{line['memory_free_mb']:.0f} MB are free, and the rest of the training would need {needed:.0f} MB; "
            f"`{self._command}` shows what grew. The same command resumes from here."
        )
