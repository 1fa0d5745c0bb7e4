"""`wm view`: a page with film strips and reward traces of episodes."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages import console
from wm.artifacts import durable
from wm.artifacts.disk import DiskBudget
from wm.episodes.dataset import Dataset
from wm.episodes.summary import summarize
from wm.errors import MissingInput, UsageProblem
from wm.report.episode_page import EpisodeCard, episodes_page
from wm.units import format_size

SPREAD = 12
MOST = 500
MOST_ASKED = 100_000


def parse_episodes(text: str) -> list[int]:
    """`0,7,20-25` -> the indices, in order."""
    found: set[int] = set()
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageProblem(f"--episodes is {text!r}; expected numbers and ranges, such as 0,7,20-25.")
        start, stop = int(first), int(last or first) + 1
        if not start < stop <= start + MOST_ASKED:
            asked = f"--episodes has {piece.strip()!r}"
            raise UsageProblem(f"{asked}; expected up to {MOST_ASKED:,} episodes, smaller first.")
        found |= set(range(start, stop))
    return sorted(found)


def places_of(dataset: Dataset, asked: str | None) -> NDArray[np.int64]:
    """Places in the dataset's table of the episodes asked for; by default of some spread over their returns."""
    if not dataset.episodes:
        raise MissingInput(f"{dataset.path} holds no episodes yet; collect some first.")
    if asked is None:
        order = np.argsort(dataset.table["return"], kind="stable")
        return np.sort(order[np.unique(np.linspace(0, len(order) - 1, min(SPREAD, len(order))).round().astype(int))])
    if asked == "all":
        return np.arange(dataset.episodes)
    indices = parse_episodes(asked)
    held = {int(index): place for place, index in enumerate(dataset.table["index"])}
    absent = [index for index in indices if index not in held]
    if absent:
        raise MissingInput(
            f"{dataset.path} has no episode {absent[0]}; it holds {dataset.episodes} below {dataset.upto}."
        )
    return np.array([held[index] for index in indices])


def view(path: Path, asked: str | None, out: Path | None) -> Path:
    """Write the page and return where it is: `out`, or beside the dataset."""
    summary, dataset = summarize(path)
    places = places_of(dataset, asked)
    if len(places) > MOST:
        raise UsageProblem(f"{len(places)} episodes are too many for a page; ask for at most {MOST} with --episodes.")
    wanted = set(dataset.table["index"][places].tolist())
    cards = []
    for part in dataset.parts:
        if wanted.isdisjoint(range(part.first, part.last)):
            continue
        for episode in dataset.episodes_of(part):
            if episode.index in wanted:
                ending = "terminated" if episode.terminated else "truncated"
                cards.append(EpisodeCard(episode.index, episode.seed, episode.frames.copy(), episode.rewards, ending))
    page = episodes_page(f"{summary.env}: {path.name}", summary.facts(), cards, summary.episodes)
    target = out or path.with_suffix(".html")
    DiskBudget(target.parent).require(len(page), 0, "the page")
    durable.make_folder(target.parent)
    durable.write_bytes(target, page)
    console.say(f"{len(cards)} of {summary.episodes} episodes, {format_size(len(page))}")
    return target
