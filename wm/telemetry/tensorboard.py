"""Curves and images in TensorBoard."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from wm import extras
from wm.runtime import Runtime

FOLDER = "tensorboard"  # in an artifact's


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
        except (Exception, SystemExit) as error:  # packages of other versions raise anything
            problem = extras.import_problem("tb") or str(error)
            log(f"warning: TensorBoard gets no curves: {problem}; run `{extras.install_command('tb')}`.")
            return
        # SummaryWriter purges from `purge_step` on, and the points of `step` itself are valid.
        self._writer = SummaryWriter(str(folder / FOLDER), purge_step=None if step < 0 else step + 1)

    def add_scalars(self, step: int, values: Mapping[str, float]) -> None:
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


class OpenTensorBoard:
    """Tells TensorBoard alone, where it is installed: what happens without other trackers."""

    def __init__(self, log: Callable[[str], None] = lambda line: None) -> None:
        self._log = log

    def __call__(self, folder: Path, step: int) -> TensorBoard:
        """The event file of a training that starts or resumes at `step`."""
        return TensorBoard(folder, step, self._log)

    def add_image(self, folder: Path, step: int, name: str, png: bytes) -> None:
        """Add a PNG to the event file."""
        board = TensorBoard(folder, log=self._log)
        board.add_image(step, name, png)
        board.close()


def add_image(runtime: Runtime, folder: Path, step: int, name: str, png: bytes) -> None:
    """Tell the Runtime's trackers, or without any TensorBoard, about a picture."""
    (runtime.track or OpenTensorBoard(runtime.log)).add_image(folder, step, name, png)
