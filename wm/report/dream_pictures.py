"""A dream next to the real episode: the same initial state and actions, as an animation and as a film strip."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from wm.artifacts import durable
from wm.dreams.env import Dreams
from wm.dreams.initial_states import initial_states_at
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents
from wm.models.vae.networks import to_frames
from wm.pretrained import TrainedMdnRnn, TrainedVae
from wm.report.film_strip import Panels, animation, film_strip
from wm.report.video import can_film, film
from wm.runtime import Runtime
from wm.seeding import integer
from wm.telemetry.tensorboard import add_image

CONTEXT, FRAMES, FPS = 16, 120, 15  # real steps before the dream, its steps, frames per second
STRIP = 10  # columns of the film strip

Frames = NDArray[np.uint8]


@dataclass(frozen=True)
class PicturedDream:
    """Frames (N, S, S, C) of a held-out episode from its middle on, V's reconstruction of them, and those of a dream
    from the same initial state with the same actions, after `context` real steps."""

    episode: int
    context: int
    real: Frames
    reconstruction: Frames
    dream: Frames

    def errors(self) -> dict[str, float]:
        """Mean summed squared error per frame, in V's units: of the dream, of the reconstruction, and of a prediction
        that repeats the first frame."""
        return {
            "pixel_error": _error(self.real, self.dream),
            "pixel_error_reconstruction": _error(self.real, self.reconstruction),
            "pixel_error_frozen": _error(self.real, np.repeat(self.real[:1], len(self.real), axis=0)),
        }

    def write(self, runtime: Runtime, folder: Path, env: str, temperature: float) -> None:
        """Write dream.gif, dream.mp4 where an encoder is installed, and the film strip dream.png, of which the
        Runtime's trackers are told."""
        panels: Panels = [("real", self.real), ("reconstruction", self.reconstruction), ("dream", self.dream)]
        captions = [f"step {step} of the dream" for step in range(len(self.real))]
        durable.write_bytes(folder / "dream.gif", animation(panels, captions, FPS))
        if can_film(runtime.log):
            film(folder / "dream.mp4", panels, captions, FPS)
        columns = np.unique(np.linspace(0, len(self.real) - 1, STRIP).astype(int))
        rows = [(label.replace("construction", "con-\nstruction"), frames[columns]) for label, frames in panels]
        title = f"{env}: a dream and the real episode, same initial state, same actions "
        title += f"(temperature {temperature:g}, after {self.context} real steps)"
        strip = film_strip(rows, [f"step {step}" for step in columns], title)
        durable.write_bytes(folder / "dream.png", strip)
        add_image(runtime, folder, 0, "dream", strip)


@torch.inference_mode()
def picture_dream(
    vae: TrainedVae, mdnrnn: TrainedMdnRnn, latents: Latents, dataset: Dataset, temperature: float, seed: int
) -> PicturedDream:
    """A dream of `FRAMES` steps after `CONTEXT` real ones, fewer where all episodes are short. `latents` are those M
    was trained on; they begin with those of `dataset`."""
    context, episodes = _long_episodes(latents, mdnrnn.held_out(latents), dataset)
    episode, first, end = _window(latents, episodes, context)
    rows = np.arange(first, end)
    z = torch.from_numpy(latents.means[rows])
    actions = torch.from_numpy(latents.space.encode(latents.actions[rows]))[None]
    initial = initial_states_at(latents, mdnrnn, np.array([first]), context)
    dreams = Dreams(mdnrnn.model, initial, temperature, integer(seed, "pictured dream"))
    dream = [initial.z[0]]
    for step in range(len(rows) - 1):
        dreams.step(actions[:, step])
        dream.append(dreams.z[0])
    decode = vae.model.decode
    return PicturedDream(
        episode,
        context,
        FrameReader(dataset).read(first, end),
        to_frames(decode(z)).numpy(),
        to_frames(decode(torch.stack(dream))).numpy(),
    )


def _long_episodes(latents: Latents, held_out: NDArray[np.bool_], dataset: Dataset) -> tuple[int, NDArray[np.int64]]:
    """The context, and the episodes of the dataset with more steps: held-out ones, or all if no held-out one has.

    Where all episodes are shorter than `CONTEXT`, as in Catch, the context is about half of the longest.
    """
    own = latents.ends <= dataset.rows
    rows = np.where(own, latents.ends - latents.starts, 0)
    # Three steps more, or there would be nothing to see of a dream.
    context, fewest = CONTEXT, CONTEXT + 3
    if rows.max() < fewest:
        context = max(int(rows.max()) // 2 - 1, 0)
        fewest = context + 2
    long = rows >= fewest
    unseen = long & held_out
    return context, np.flatnonzero(unseen if unseen.any() else long)


def _window(latents: Latents, episodes: NDArray[np.int64], context: int) -> tuple[int, int, int]:
    """(episode, first row, end) of the middle of one of the longer episodes, in which latents move more than in three
    quarters of them: a car in the grass shows nothing."""
    lengths = latents.ends - latents.starts
    longer = episodes[lengths[episodes] >= np.median(lengths[episodes])]
    margin = np.maximum(lengths[longer] - context - FRAMES - 1, 0)
    firsts = latents.starts[longer] + margin // 2 + context
    ends = np.minimum(firsts + FRAMES, latents.ends[longer])
    moves = [np.square(np.diff(latents.means[a:b], axis=0)).mean() for a, b in zip(firsts, ends, strict=True)]
    index = np.argsort(moves, kind="stable")[len(longer) * 3 // 4]
    return int(longer[index]), int(firsts[index]), int(ends[index])


def _error(real: Frames, other: Frames) -> float:
    difference = (real.astype(np.float32) - other.astype(np.float32)) / 255
    return float(np.square(difference).sum(axis=(1, 2, 3)).mean())
