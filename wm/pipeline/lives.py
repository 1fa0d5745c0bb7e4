"""What a dataset tells of lost lives."""

import numpy as np
from numpy.typing import NDArray

from wm.envs.labels import LIVES
from wm.episodes.dataset import Dataset


def lost_lives_end(network: str, dataset: Dataset) -> bool:
    """Whether a lost life is an end for an M of this network whose first dataset this is. The paper's M sees whole
    episodes; a dataset that an earlier version began does not tell when a life was lost."""
    return network == "rollout" and LIVES in dataset.label_names


def lost_lives(dataset: Dataset) -> NDArray[np.bool_]:
    """Whether each frame (rows,) shows that a life was lost; empty if the dataset does not tell."""
    if LIVES not in dataset.label_names:
        return np.empty(0, bool)
    lives = dataset.column("labels")[:, dataset.label_names.index(LIVES)]
    fewer: NDArray[np.bool_] = np.diff(lives, prepend=np.nan) < 0
    return fewer
