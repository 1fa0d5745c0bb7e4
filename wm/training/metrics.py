"""`metrics.jsonl`: one JSON object a line, with memory telemetry; TensorBoard beside it where it is installed."""

import importlib.util
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image

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


class Board:
    """TensorBoard's event file beside the metrics, with the same names; nothing where it is not installed."""

    def __init__(self, folder: Path, step: int = -1) -> None:
        self._writer: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=None if step < 0 else step)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Numbers by name."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def picture(self, step: int, name: str, png: bytes) -> None:
        """A PNG."""
        if self._writer is not None:
            pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
            self._writer.add_image(name, pixels, step, dataformats="HWC")

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()


def show_picture(folder: Path, step: int, name: str, png: bytes) -> None:
    """Add a PNG to a finished training's event file."""
    board = Board(folder)
    board.picture(step, name, png)
    board.close()


class MetricsLog:
    """Appends metrics by step. Opened at a step, it drops later lines and a torn last one: nothing stands twice."""

    def __init__(self, folder: Path, step: int) -> None:
        self._path = folder / NAME
        kept = [line for line in read(folder) if line["step"] <= step]
        durable.write_bytes(self._path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self._board = Board(folder, step)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Append one line: the step, the values, and the memory in use."""
        line = {"step": step, **values, "rss_anon_mb": round(anonymous_memory() / 1e6, 1)}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._board.scalars(step, line)

    def close(self) -> None:
        """Make the file durable."""
        with open(self._path, "a") as file:
            os.fsync(file.fileno())
        self._board.close()


def read(folder: Path, name: str = NAME) -> list[dict[str, Any]]:
    """All whole lines of a folder's metrics, or of another log that may be growing."""
    lines = []
    try:
        text = (folder / name).read_text(encoding="utf-8")
    except OSError:
        return []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines
