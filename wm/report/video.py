"""MP4 videos, where the extra mp4 is installed."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm import extras
from wm.episodes.dataset import Dataset
from wm.episodes.schema import Episode
from wm.report.film_strip import Panels, sheets

FPS = 30
_ENLARGED = 4  # a video of 64 pixels is too small to watch


def can_film(log: Callable[[str], None]) -> bool:
    """Whether the extra is installed. One that cannot be imported costs videos alone, and a line in `log`."""
    if not extras.is_installed("mp4"):
        return False
    if problem := extras.import_problem("mp4"):
        log(f"warning: no MP4 video is written: {problem}; run `{extras.install_command('mp4')}`.")
    return not problem


def film(path: Path, panels: Panels, captions: Sequence[str], fps: int) -> None:
    """The sheets of an animation as a video."""
    write_film(path, (np.asarray(sheet) for sheet in sheets(panels, captions)), fps)


def write_mp4(folder: Path, _: Dataset, episodes: Sequence[Episode]) -> None:
    """A video of every episode, four times enlarged."""
    for episode in episodes:
        large = (frame.repeat(_ENLARGED, axis=0).repeat(_ENLARGED, axis=1) for frame in episode.frames)
        rgb = (np.repeat(frame, 3, axis=-1) if frame.shape[-1] == 1 else frame for frame in large)
        write_film(folder / f"episode-{episode.index:06d}.mp4", rgb, FPS)


def write_film(path: Path, frames: Iterable[NDArray[np.uint8]], fps: int) -> None:
    """A video of (H, W, 3) frames."""
    import imageio.v2 as imageio

    # Frames of any even size: by default the writer rounds sides up to a multiple of 16.
    writer: Any = imageio.get_writer(path, fps=fps, codec="libx264", quality=8, macro_block_size=2)
    with writer:
        for frame in frames:
            writer.append_data(frame)
