"""`metrics.jsonl`: one JSON object a line, with memory telemetry; TensorBoard beside it where it is installed."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import psutil

from wm.artifacts import durable

NAME = "metrics.jsonl"


def anonymous_memory() -> int:
    """RssAnon of this process in bytes (RSS where /proc is missing): page cache is not a leak."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(psutil.Process().memory_info().rss)


class MetricsLog:
    """Appends metrics by step. Opened at a step, it drops later lines and a torn last one: nothing stands twice."""

    def __init__(self, folder: Path, step: int) -> None:
        self._path = folder / NAME
        kept = [line for line in read(folder) if line["step"] <= step]
        durable.write_bytes(self._path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self._board: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Append one line: the step, the values, and the memory in use."""
        line = {"step": step, **values, "rss_anon_mb": round(anonymous_memory() / 1e6, 1)}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._board is not None:
            for name, value in line.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Make the file durable."""
        with open(self._path, "a") as file:
            os.fsync(file.fileno())
        if self._board is not None:
            self._board.close()


def read(folder: Path) -> list[dict[str, Any]]:
    """All whole lines of a folder's metrics."""
    lines = []
    try:
        text = (folder / NAME).read_text(encoding="utf-8")
    except OSError:
        return []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines
