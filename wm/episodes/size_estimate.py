"""How large a dataset will be, told from its first episodes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wm.episodes import schema
from wm.episodes.parts import PartBuilder
from wm.episodes.schema import PackedEpisode

MARGIN = 1.2
HALF_BLOCK = 2048  # what a file's last block leaves empty, on average
SAMPLE_EPISODES = 16
SAMPLE_ROWS = 4000


def is_enough(sample: Sequence[PackedEpisode], wanted: int) -> bool:
    """Whether so many episodes tell how large and how long the others will be."""
    rows = sum(episode.rows for episode in sample)
    return len(sample) >= min(wanted, SAMPLE_EPISODES) or (rows >= SAMPLE_ROWS and len(sample) >= 4)


@dataclass(frozen=True)
class Need:
    """What a number of episodes will take on disk."""

    bytes: int
    files: int


def expected(path: Path, recipe: dict[str, Any], sample: Sequence[PackedEpisode], episodes: int) -> Need:
    """What `episodes` like those of the sample will take, with a margin: columns in proportion, and what every part
    takes however small it is."""
    builder = PartBuilder(path, recipe, sample[0].index)
    for episode in sample:
        builder.add(replace(episode.unpack(), index=builder.last))  # they need not follow each other
    files = builder.files()
    columns = sum(len(data) for name, data in files.items() if name.rpartition("/")[2].startswith("c."))
    fixed = sum(map(len, files.values())) - columns + len(files) * HALF_BLOCK
    length = builder.rows / len(sample)
    parts = math.ceil(episodes * max(length / (schema.PART_ROWS + length / 2), 1 / schema.BLOCK_EPISODES))
    size = (columns / len(sample) * episodes + fixed * parts) * MARGIN
    return Need(int(size), 2 * len(files) * parts + 16)
