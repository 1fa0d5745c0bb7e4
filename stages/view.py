"""`wm view`: a page that plays episodes, with their actions, rewards and labels."""

from pathlib import Path

import click

from stages import console
from stages.parameter_types import DatasetPath, PagePath, place_of
from wm.errors import UsageProblem
from wm.units import format_size

MOST = 500  # episodes of a page


@click.command(name="view")
@click.argument("path", type=DatasetPath())
@click.option(
    "--episodes",
    default=None,
    metavar="LIST",
    help="Which episodes, such as 0,7,20-25, or all.  [default: a few of different returns]",
)
@click.option("--out", type=PagePath(), default=None, help="The page  [default: beside the dataset].")
def command(path: Path, episodes: str | None, out: Path | None) -> None:
    """Write one HTML page that plays episodes, with their actions, rewards and labels.

    Example: wm view data/Pong.zarr --episodes 0-9
    """
    console.echo(console.visible(str(view(path, episodes, out)), keep=""))


def view(path: Path, episodes: str | None, out: Path | None) -> Path:
    """Write the page and return its path: `out`, or beside the dataset."""
    from wm.actions import ActionSpace
    from wm.artifacts import durable
    from wm.artifacts.disk import DiskBudget
    from wm.episodes import selection
    from wm.episodes.summary import summarize
    from wm.report.episode_page import DatasetPage, EpisodeCard

    summary, dataset = summarize(path)
    rows = selection.select(dataset, episodes)
    if len(rows) > MOST:
        raise UsageProblem(f"{len(rows)} episodes are too many for a page; ask for at most {MOST} with --episodes.")
    cards = [EpisodeCard.of(episode) for batch in selection.read(dataset, rows) for episode in batch]
    space, labels = ActionSpace.from_json(dataset.recipe["action_space"]), dataset.recipe["labels"]
    place = place_of(path)
    title = f"{summary.env}: {place.name}"
    facts, count, unit = summary.facts(), summary.episodes, summary.unit
    page = DatasetPage(title, facts, summary.env, space, labels, count, unit).render(cards)
    beside = place if place.name else place.resolve()
    # Of a.zarr and a.old each has a page of its own.
    target = out or beside.with_name(f"{beside.name.removesuffix('.zarr')}.html")
    DiskBudget(target.parent).require(len(page), 0, "the page")
    durable.make_folder(target.parent)
    durable.write_bytes(target, page)
    console.say(f"{len(cards)} of {count} {unit}s, {format_size(len(page))}")
    return target
