"""Real states in which the page's dreams start, and what was recorded from there on."""

import base64
import io
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from wm.dreams.env import InitialStates
from wm.dreams.initial_states import CONTEXT, initial_states_at
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents
from wm.pretrained import TrainedMdnRnn
from wm.report.play.weights import Add

STARTS = 8
Frames = NDArray[np.uint8]


@dataclass(frozen=True)
class Start:
    """A row of a recorded episode, M's `initial` state there, and from it to the row `end` what was recorded: `latents`
    (n, Z), encoded `actions` (n - 1, A), `rewards` (n - 1,) and `frames` (n, S, S, C)."""

    episode: int
    step: int
    initial: InitialStates
    latents: NDArray[np.float32]
    actions: NDArray[np.float32]
    rewards: NDArray[np.float32]
    frames: Frames

    def first(self, rows: int) -> "Start":
        """The same with at most so many recorded rows."""
        steps = rows - 1
        return replace(
            self,
            latents=self.latents[:rows],
            actions=self.actions[:steps],
            rewards=self.rewards[:steps],
            frames=self.frames[:rows],
        )

    def describe(self, add: Add) -> dict[str, Any]:
        """Plain values and weights, for the class of dream.js."""
        initial = self.initial
        return {
            "episode": self.episode,
            "step": self.step,
            "z": add(initial.z),
            "state": [add(part) for part in initial.state],
            "zBefore": add(initial.z_before),
            "actionBefore": add(initial.action_before),
            "latents": add(self.latents),
            "actions": add(self.actions),
            "rewards": add(self.rewards),
            "frames": _sheet(self.frames),
        }


def choose_starts(latents: Latents, mdnrnn: TrainedMdnRnn, dataset: Dataset, rows: int) -> list[Start]:
    """`STARTS` different states, each with at most so many recorded `rows`, of long episodes that V and M did not learn
    from, if there are any. Half of them are a few steps into an episode, half in its middle. `latents` are those M was
    trained on; they begin with those of `dataset`."""
    reader, chosen = FrameReader(dataset), list[Start]()
    for number, episode in enumerate(_episodes(latents, mdnrnn.held_out(latents), dataset)):
        first, end = int(latents.starts[episode]), int(latents.ends[episode])
        context = min(CONTEXT, max((end - first) // 2 - 1, 0))
        row = max(first + context, (first + end - rows) // 2) if number % 2 else first + context
        until = min(row + rows, end)
        initial = initial_states_at(latents, mdnrnn, np.array([row]), context)
        actions = latents.space.encode(latents.actions[row : until - 1])
        chosen.append(
            Start(
                int(episode),
                row - first,
                initial,
                latents.means[row:until],
                actions,
                latents.rewards[row : until - 1],
                reader.read(row, until),
            )
        )
    return chosen


def _episodes(latents: Latents, held_out: NDArray[np.bool_], dataset: Dataset) -> NDArray[np.int64]:
    """At most `STARTS` episodes of the dataset, evenly over the longer half of the held-out ones; of all, if too few
    are held out."""
    own = np.flatnonzero(latents.ends <= dataset.rows)
    unseen = own[held_out[own]]
    candidates = unseen if len(unseen) >= STARTS else own
    lengths = (latents.ends - latents.starts)[candidates]
    # The longer half: short episodes show little.
    longer = candidates[np.argsort(-lengths, kind="stable")[: max(len(candidates) // 2, STARTS)]]
    return np.sort(longer)[np.unique(np.linspace(0, len(longer) - 1, STARTS).astype(int))]


def _sheet(frames: Frames) -> str:
    """The frames side by side as a PNG's data address."""
    colored = np.repeat(frames, 3, axis=-1) if frames.shape[-1] == 1 else frames[..., :3]
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate(list(colored), axis=1)).save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
