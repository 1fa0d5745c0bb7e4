"""An estimate of a dataset's size from its first episodes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wm.episodes import schema
from wm.episodes.parts import PartBuilder
from wm.episodes.schema import PackedEpisode

MARGIN = 1.2  # later episodes may be longer and compress worse; the estimate is 1.0 to 1.5 times the real size
HALF_BLOCK = 2048  # bytes that a file leaves empty in its last disk block, on average
# Short episodes differ more; sixteen of them keep the estimate within its margin.
SAMPLE_EPISODES = 16
SAMPLE_STEPS = 3000  # of at least four episodes: where episodes are long, fewer suffice


def sample_suffices(sample: Sequence[PackedEpisode], episodes: int) -> bool:
    """Whether the sample suffices to estimate the size and length of `episodes`: 16 episodes, or four long ones."""
    steps = sum(episode.steps for episode in sample)
    return len(sample) >= min(episodes, SAMPLE_EPISODES) or (steps >= SAMPLE_STEPS and len(sample) >= 4)


@dataclass(frozen=True)
class SizeEstimate:
    """Disk space that a number of episodes takes."""

    bytes: int
    files: int


def estimate_size(recipe: dict[str, Any], sample: Sequence[PackedEpisode], episodes: int) -> SizeEstimate:
    """Disk space of `episodes` like those of the sample, with a margin.

    Columns grow in proportion to the episodes. Metadata is counted for every part, however small the part is.
    """
    builder = PartBuilder(Path(), recipe, sample[0].index)
    for episode in sample:
        # The sample has gaps where lost episodes are collected again.
        builder.add(replace(episode, index=builder.last))
    files = builder.files()
    columns = sum(len(data) for name, data in files.items() if name.rpartition("/")[2].startswith("c."))
    metadata = sum(map(len, files.values())) - columns + len(files) * HALF_BLOCK
    length = builder.rows / len(sample)
    # Half an episode is how far a part passes PART_ROWS on average, as it ends with a whole one.
    parts = math.ceil(episodes * max(length / (schema.PART_ROWS + length / 2), 1 / schema.BLOCK_EPISODES))
    size = (columns / len(sample) * episodes + metadata * parts) * MARGIN
    # Inodes: at most one folder for each file of a part, and 16 for the root and the staging.
    return SizeEstimate(int(size), 2 * len(files) * parts + 16)
