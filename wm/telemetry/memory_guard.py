"""Watches the memory of a training, and says when it must end before the machine swaps."""

from collections import deque
from pathlib import Path
from typing import Any

from wm.runtime import Runtime
from wm.telemetry import heap_snapshot as census
from wm.telemetry.trend import column
from wm.units import format_size

REMEMBERED, FEWEST, EVERY = 200, 60, 20  # readings: kept, needed, between two looks at the slope
SHARE = 0.5  # of the memory that is free, which the rest of the training must not be about to take


class MemoryGuard:
    """Looks at every line of metrics. With `memory_snapshots` it also writes what is alive, after a quarter of the
    training and at its end."""

    def __init__(self, runtime: Runtime, folder: Path, steps: int) -> None:
        self._log = runtime.log
        self._limit, self._folder, self._steps = runtime.memory_limit, folder, steps
        self._lines: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self._seen = 0
        self._snapshots = deque((0.25, 0.95)) if runtime.memory_snapshots else deque[float]()
        if runtime.memory_snapshots:
            census.begin()

    def look(self, line: dict[str, Any]) -> str:
        """Why training has to end now, in one sentence; empty if it need not."""
        self._lines.append(line)
        self._seen += 1
        if self._snapshots and line["step"] >= self._snapshots[0] * self._steps:
            self._snapshots.popleft()
            census.save(self._folder, int(line["step"]))
            self._log(f"what is in memory at step {line['step']} is written to {self._folder}")
        used = (line["rss_anon_mb"] + line["children_mb"]) * 1e6
        if self._limit is not None and used > self._limit:
            return (
                f"{format_size(used)} of memory are in use at step {line['step']} and --memory-limit is "
                f"{format_size(self._limit)}; `wm memory {self._shown}` shows what grew. "
                "The same command continues with "
                "a higher limit."
            )
        return self._alarm(line) if self._seen % EVERY == 0 and len(self._lines) >= FEWEST else ""

    @property
    def _shown(self) -> Path:
        return self._folder.parent

    def _alarm(self, line: dict[str, Any]) -> str:
        recent = list(self._lines)[len(self._lines) // 5 :]
        found = column([line for line in recent if line.get("trimmed", 1)], "unexplained_mb")
        if found is None or not found.rises:
            return ""
        coming = found.slope * (self._steps - line["step"])
        if coming < SHARE * line["memory_free_mb"]:
            return ""
        return (
            f"memory grows by {1000 * found.slope:.1f} kB a step that no buffer accounts for, and at step "
            f"{line['step']} {line['memory_free_mb']:.0f} MB are free where {coming:.0f} MB more would be taken; "
            f"`wm memory {self._shown}` shows what grew. The same command continues from here."
        )
