"""`metrics.jsonl`: one JSON object a line, with memory telemetry; also TensorBoard where it is installed."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from wm import extras
from wm.artifacts import durable, json_reader
from wm.artifacts.json_reader import COUNT, FIGURE, Schema, table
from wm.errors import BadData
from wm.telemetry.usage import Meter

NAME = "metrics.jsonl"
LINE = table({"step": COUNT}, others=FIGURE)
WAY_OUT = "restore the file, or remove it to go without"


class TensorBoard:
    """TensorBoard's event file next to the metrics, with the same names; nothing where it is not installed. Resumed
    at a step, TensorBoard hides later points of earlier files. A TensorBoard whose import fails is left out with a
    line in `log`."""

    def __init__(self, folder: Path, step: int = -1, log: Callable[[str], None] = lambda line: None) -> None:
        self._writer: Any = None
        if not extras.is_installed("tb"):
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except Exception as error:  # packages of other versions raise anything
            problem = extras.import_problem("tb") or str(error)
            log(f"warning: TensorBoard gets no curves: {problem}; run `{extras.install_command('tb')}`.")
            return
        # SummaryWriter purges from `purge_step` on, and the points of `step` itself are valid.
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=None if step < 0 else step + 1)

    def add_scalars(self, step: int, values: dict[str, float]) -> None:
        """Numbers by name."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def add_image(self, step: int, name: str, png: bytes) -> None:
        """A PNG."""
        if self._writer is not None:
            pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
            self._writer.add_image(name, pixels, step, dataformats="HWC")

    def close(self) -> None:
        """Flush the file."""
        if self._writer is not None:
            self._writer.close()


def add_image(folder: Path, step: int, name: str, png: bytes) -> None:
    """Add a PNG to a finished training's event file."""
    board = TensorBoard(folder)
    board.add_image(step, name, png)
    board.close()


class MetricsLog:
    """Appends metrics by step, with the memory in use; `buffers` returns the bytes of long-lived buffers. Opened at a
    step, it drops later lines and an incomplete last one, so that no step has two lines."""

    def __init__(
        self,
        folder: Path,
        step: int,
        buffers: Callable[[], int] = lambda: 0,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._path = folder / NAME
        lines = [line for line in _before_damage(folder) if line["step"] <= step]
        durable.write_bytes(self._path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        self._board, self._meter, self._buffers = TensorBoard(folder, step, log), Meter(folder), buffers

    def write(self, step: int, values: dict[str, float]) -> dict[str, float]:
        """Append one line, and return it: the step, the values, the memory in use, and the process."""
        line = {"step": step, **values, **self._meter.read(self._buffers()), "process": os.getpid()}
        with durable.open_file(self._path, "ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
        self._board.add_scalars(step, line)
        return line

    def close(self) -> None:
        """Make the file durable."""
        with durable.open_file(self._path, "ab") as file:
            os.fsync(file.fileno())
        self._board.close()


def read(folder: Path, name: str = NAME, line: Schema = LINE) -> list[dict[str, Any]]:
    """All whole lines of a folder's metrics, or of another log that may be growing, each of the schema `line`. Raises
    BadData with the number of a damaged line."""
    path = folder / name
    try:
        data = durable.read_bytes(path)
    except OSError:
        return []
    return json_reader.parse_lines(data, str(path), line, WAY_OUT, finite=False)


def _before_damage(folder: Path) -> list[dict[str, Any]]:
    """The lines before the first damaged one: lines are not synced, so a power failure may leave zeros at the end."""
    try:
        data = durable.read_bytes(folder / NAME)
    except OSError:
        return []
    lines: list[dict[str, Any]] = []
    for text in data.splitlines(keepends=True):
        try:
            lines += json_reader.parse_lines(text, NAME, LINE, finite=False)
        except BadData:
            break
    return lines
