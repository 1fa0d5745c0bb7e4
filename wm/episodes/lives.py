"""Episodes cut where a life is lost.

A game with several lives goes on after a lost one, so M would learn that losing the ball costs little: in Breakout it
ends an episode once in five times, and which time, no frame tells. For M a lost life is the end, as for the agents of
Mnih et al. (2015), and no dream in which PPO trains starts across one; episodes, scores and validations stay whole.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wm.episodes.latents import Latents


def cut_at_lost_lives(network: str, parts: Sequence[Latents]) -> list[Latents]:
    """What an M of this network takes for the episodes of these datasets: an episode for each life where the first
    dataset tells of lives. The paper's M sees whole episodes.

    A life ends with the frame that shows its loss, and that episode is terminated. The next one begins a frame later.
    """
    if network != "rollout" or not len(parts[0].lost):
        return list(parts)
    return [cut(part, np.flatnonzero(part.lost)) for part in parts]


def cut(latents: Latents, lost: NDArray[np.int64]) -> Latents:
    """The latents cut after the rows `lost`, but where an episode of a single frame would be left, which has no
    step."""
    whole = np.searchsorted(latents.ends, lost, side="right")
    # Two rows behind the cut: an episode needs a frame, an action and the frame after it.
    lost = lost[(lost > latents.starts[whole]) & (lost < latents.ends[whole] - 2)]
    # Of lives lost in rows next to each other the first cut counts, or an episode of one frame would stay.
    lost = lost[np.diff(lost, prepend=-2) > 1]
    ends = np.union1d(latents.ends, lost + 1)
    whole = np.searchsorted(latents.ends, ends)
    terminated = latents.terminated[whole] | (ends < latents.ends[whole])
    return replace(latents, ends=ends, terminated=terminated, seeds=latents.seeds[whole])
