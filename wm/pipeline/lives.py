"""Episodes cut where a life is lost.

A game with several lives goes on after a lost one, so M would learn that losing the ball costs little: in Breakout it
ends an episode once in five times, and which time, no frame tells. For M a lost life is the end, as for the agents of
Mnih et al. (2015); episodes, scores and validations stay whole.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wm.envs.labels import LIVES
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents


def lost_lives_end(network: str, dataset: Dataset) -> bool:
    """Whether a lost life is an end for an M of this network whose first dataset this is. The paper's M sees whole
    episodes; a dataset that an earlier version began does not tell when a life was lost."""
    return network == "rollout" and LIVES in dataset.label_names


def cut_at_lost_lives(latents: Latents, dataset: Dataset) -> Latents:
    """The latents of `dataset` with an episode for each life; the same if it does not tell of lives.

    A life ends with the frame that shows its loss, and that episode is terminated. The next one begins a frame later.
    """
    if LIVES not in dataset.label_names:
        return latents
    lives = dataset.column("labels")[:, dataset.label_names.index(LIVES)]
    return cut(latents, np.flatnonzero(np.diff(lives, prepend=np.nan) < 0))


def cut(latents: Latents, lost: NDArray[np.int64]) -> Latents:
    """The latents cut after the rows `lost`, but where an episode of a single frame would be left, which has no
    step."""
    whole = np.searchsorted(latents.ends, lost, side="right")
    lost = lost[(lost > latents.starts[whole]) & (lost < latents.ends[whole] - 2)]
    lost = lost[np.diff(lost, prepend=-2) > 1]
    ends = np.union1d(latents.ends, lost + 1)
    whole = np.searchsorted(latents.ends, ends)
    terminated = latents.terminated[whole] | (ends < latents.ends[whole])
    return replace(latents, ends=ends, terminated=terminated, seeds=latents.seeds[whole])
