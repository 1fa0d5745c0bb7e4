"""Films in MP4, where the packages for it are installed: pip install imageio imageio-ffmpeg."""

import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.report.film_strip import Panels, sheets


def can_film() -> bool:
    """Whether the packages are there."""
    return all(importlib.util.find_spec(package) is not None for package in ("imageio", "imageio_ffmpeg"))


def film(path: Path, panels: Panels, captions: Sequence[str], fps: int) -> None:
    """The sheets of an animation as a film."""
    write_film(path, (np.asarray(sheet) for sheet in sheets(panels, captions)), fps)


def write_film(path: Path, frames: Iterable[NDArray[np.uint8]], fps: int) -> None:
    """A film of (H, W, 3) frames."""
    import imageio.v2 as imageio

    # Frames of any even size: by default the writer rounds sides up to a multiple of 16.
    writer: Any = imageio.get_writer(path, fps=fps, codec="libx264", quality=8, macro_block_size=2)
    with writer:
        for frame in frames:
            writer.append_data(frame)
