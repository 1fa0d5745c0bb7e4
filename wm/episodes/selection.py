"""Which episodes of a dataset somebody asks for, and reading those alone."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from wm.episodes.dataset import Dataset, way_to_collect
from wm.episodes.schema import Episode
from wm.errors import MissingInput, UsageProblem

SAMPLE = 12  # episodes that stand for a dataset
MOST_DIGITS = 1000  # of the number of an episode: Python reads up to 4,300
MOST_ASKED = 100_000  # of a range, so that a typing error does not fill the memory


def is_number(text: str) -> bool:
    """Whether a text is the number of an episode, or a number of them: digits, and not more than Python reads."""
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def parse_episodes(text: str) -> list[int]:
    """`0,7,20-25` -> the indices, in order."""
    indices: set[int] = set()
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not all(map(is_number, (first, last) if dash else (first,))):
            raise UsageProblem(f"--episodes is {text[:80]!r}; expected numbers and ranges, such as 0,7,20-25.")
        start, stop = int(first), int(last or first) + 1
        if not start < stop <= start + MOST_ASKED:
            problem = f"--episodes has {piece.strip()!r}"
            raise UsageProblem(f"{problem}; expected up to {MOST_ASKED:,} episodes, smaller first.")
        indices |= set(range(start, stop))
    return sorted(indices)


def select(dataset: Dataset, episodes: str | None) -> NDArray[np.int64]:
    """Rows, in the dataset's table, of the episodes asked for: a list, `all`, or by default SAMPLE of them at even
    ranks of their returns."""
    if not dataset.episodes:
        way_out = way_to_collect(dataset.path, dataset.recipe["env"]["name"])
        raise MissingInput(f"{dataset.path} holds no episodes yet; {way_out}.")
    if episodes is None:
        # Stable, so that of equal returns the same episodes are shown on every machine.
        order = np.argsort(dataset.table["return"], kind="stable")
        ranks = np.linspace(0, len(order) - 1, min(SAMPLE, len(order))).round().astype(int)
        return np.sort(order[np.unique(ranks)])
    if episodes == "all":
        return np.arange(dataset.episodes)
    indices = parse_episodes(episodes)
    rows = {int(index): row for row, index in enumerate(dataset.table["index"])}
    absent = [index for index in indices if index not in rows]
    if absent:
        raise MissingInput(
            f"{dataset.path} has no episode {absent[0]}; its {dataset.episodes} are numbered 0 to {dataset.upto - 1}."
        )
    return np.array([rows[index] for index in indices])


def read(dataset: Dataset, rows: NDArray[np.int64]) -> Iterator[list[Episode]]:
    """The episodes in these rows of the dataset's table, one part's at a time; the next part replaces their arrays."""
    indices = set(dataset.table["index"][rows].tolist())
    for part in dataset.parts:
        if not indices.isdisjoint(range(part.first, part.last)):
            yield [episode for episode in dataset.episodes_of(part) if episode.index in indices]
