"""Which episodes are for validation."""

import numpy as np
from numpy.typing import NDArray

from wm.seeding import generator


def validation_mask(seeds: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """(episodes,) True for validation episodes. An episode's side depends on its own seed, so more data moves none.

    With two episodes or more, each side has at least one. A single episode serves both sides, and its mask is False.
    Those of one seed, such as the lives of one episode, are on the same side.
    """
    # The stream's name is part of every split that was ever made; another would move episodes between the sides.
    draws = np.array([generator(int(seed), "held out").random() for seed in seeds])
    mask: NDArray[np.bool_] = draws < share
    if draws.min() < draws.max():
        mask[draws == draws.min()] = True
        mask[draws == draws.max()] = False
    else:
        mask[:] = False
    return mask
