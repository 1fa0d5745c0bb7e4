"""`metrics.jsonl`: a log with memory telemetry, each line chained to those before. A tracker is told the same."""

import contextlib
import os
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

from wm.artifacts import chained_log, durable
from wm.artifacts.chained_log import Line
from wm.artifacts.json_reader import COUNT, FIGURE, NUMBER, table
from wm.errors import BadData
from wm.runtime import OpenTracker, Tracker
from wm.telemetry.tensorboard import OpenTensorBoard
from wm.telemetry.usage import Meter

NAME = "metrics.jsonl"
_READINGS = (
    *("rss_anon_mb", "children_mb", "buffers_mb", "unexplained_mb", "memory_free_mb", "disk_mb", "trimmed", "replay"),
    *("cuda_allocated_mb", "cuda_reserved_mb", "cuda_blocks_small", "cuda_retries"),
)
LINE = table({"step": COUNT}, dict.fromkeys(("seconds", *_READINGS), NUMBER), others=FIGURE)


class MetricsLog:
    """Appends metrics by step, with the memory in use; `buffers` returns the bytes of long-lived buffers. Opened at a
    step, it drops later lines and an incomplete last one, so that no step has two lines. Opens a tracker with `track`;
    without, TensorBoard where it is installed. With a `clock` lines say how long the training has taken since `began`,
    or else since now; `earlier_seconds` are those of the lines that were kept, of which `last` is the last. Raises
    BadData for a line that was changed."""

    def __init__(
        self,
        folder: Path,
        step: int,
        buffers: Callable[[], int] = lambda: 0,
        log: Callable[[str], None] = lambda line: None,
        track: OpenTracker | None = None,
        clock: Callable[[], float] | None = None,
        began: float | None = None,
    ) -> None:
        self._clock, self._began = clock, clock() if clock and began is None else began or 0.0
        self._path = folder / NAME
        lines = list(takewhile(lambda line: line.value["step"] <= step, chained(folder)))
        # Before the later lines are dropped: a tracker was told them.
        self._tracker: Tracker = (track or OpenTensorBoard(log))(folder, step)
        durable.write_bytes(self._path, b"".join(line.data for line in lines))
        self._digest = lines[-1].digest if lines else chained_log.start(folder)
        self.last: dict[str, Any] = lines[-1].value if lines else {}
        self.earlier_seconds = float(self.last.get("seconds", 0.0))
        self._meter, self._buffers = Meter(folder), buffers

    def write(self, step: int, values: dict[str, float]) -> dict[str, float]:
        """Append one line, and return it: the step, the values, the time, the memory in use, and the process."""
        time = {"seconds": round(self.earlier_seconds + self._clock() - self._began, 1)} if self._clock else {}
        line = {"step": step, **values, **time, **self._meter.read(self._buffers()), "process": os.getpid()}
        chained = chained_log.chain(self._digest, line)
        with durable.open_file(self._path, "ab") as file:
            file.write(chained.data)
        self._digest = chained.digest
        self._tracker.add_scalars(step, line)
        return line

    def close(self) -> None:
        """Make the file durable."""
        chained_log.sync(self._path)
        self._tracker.close()


def read(folder: Path) -> list[dict[str, Any]]:
    """All whole lines of the metrics in an artifact's folder, finished or growing; none without metrics. Raises BadData
    for damaged ones."""
    return chained_log.read(folder, NAME, LINE, finite=False)


def chained(folder: Path) -> list[Line]:
    """The whole lines of an unfinished artifact's metrics, before the first zero byte: lines are not synced one by one,
    so a power failure may leave zeros at the end. Raises BadData for a line that was changed."""
    path = folder / NAME
    if not path.exists():
        return []
    data = durable.read_log(path).partition(b"\0")[0]
    way_out = f"restore it, or remove {folder} to begin anew"
    return chained_log.parse(data, str(path), chained_log.start(folder), LINE, way_out, finite=False)


def copy(source: Path, folder: Path) -> None:
    """Copy the metrics of another artifact, as those of the unfinished one in `folder`; damaged ones are left out."""
    # Metrics are a note: a search goes on without those of the one it continues.
    with contextlib.suppress(BadData):
        lines = read(source)
        durable.write_bytes(folder / NAME, chained_log.chain_all(chained_log.start(folder), lines))
