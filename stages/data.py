"""`wm data`: new datasets from others, or from files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages import console
from stages.options import SuggestingGroup, complete_environment
from stages.parameter_types import DatasetPath, GivenPath, Number, OneOf
from wm.units import parse_size

if TYPE_CHECKING:
    from wm.episodes.new_datasets import NewDataset

_dataset = DatasetPath()
_new = GivenPath()
_out = click.option("--out", type=_new, required=True, help="The new dataset.")


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every subcommand."""
    help_ = "Bytes that may be used at the target, such as 500MB.  [none]"
    budget = click.option("--disk-budget", default=None, metavar="SIZE", help=help_)
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
    return budget(as_json(command))


@click.group(name="data", cls=SuggestingGroup, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Write new datasets: merged, split, without some episodes, or imported.

    A dataset is never changed: each of these writes another one, with its episodes numbered from 0, and its recipe says
    where they are from. What exists is not replaced.

    Example: wm data drop data/Pong.zarr --episodes 3,5-7 --out data/good.zarr
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command(name="merge", short_help="Write all episodes of several datasets.")
@click.argument("datasets", nargs=-1, required=True, type=_dataset)
@_out
@_shared
def merge_command(datasets: tuple[Path, ...], out: Path, disk_budget: str | None, as_json: bool) -> None:
    """Write all episodes of several datasets, of the same environment, frames and actions.

    Example: wm data merge data/Pong.zarr data/more.zarr --out data/both.zarr
    """
    from wm.episodes.dataset import Dataset
    from wm.episodes.editing import merge

    edit = merge([Dataset.open(path) for path in datasets])
    _write([(out, edit)], disk_budget, as_json)


@command.command(name="split", short_help="Write the first N episodes and the others apart.")
@click.argument("dataset", type=_dataset)
@click.option("--at", type=Number(low=1), required=True, metavar="N", help="Episodes in the first dataset.")
@click.option("--out-first", type=_new, required=True, help="The new dataset of the first N episodes.")
@click.option("--out-rest", type=_new, required=True, help="The new dataset of the others.")
@_shared
def split_command(
    dataset: Path, at: int, out_first: Path, out_rest: Path, disk_budget: str | None, as_json: bool
) -> None:
    """Write the first N episodes to one dataset and the others to another.

    \b
    Example: wm data split data/Pong.zarr --at 40 \\
      --out-first data/Pong.a.zarr --out-rest data/Pong.b.zarr
    """
    from wm.episodes.dataset import Dataset
    from wm.episodes.editing import split

    first, rest = split(Dataset.open(dataset), at)
    _write([(out_first, first), (out_rest, rest)], disk_budget, as_json)


@command.command(name="drop")
@click.argument("dataset", type=_dataset)
@click.option("--episodes", required=True, metavar="LIST", help="Episodes to leave out, such as 3,5-7.")
@_out
@_shared
def drop_command(dataset: Path, episodes: str, out: Path, disk_budget: str | None, as_json: bool) -> None:
    """Write all episodes but some.

    Example: wm data drop data/Pong.zarr --episodes 3,5-7 --out data/good.zarr
    """
    from wm.episodes.dataset import Dataset
    from wm.episodes.editing import drop

    _write([(out, drop(Dataset.open(dataset), episodes))], disk_budget, as_json)


@command.command(name="import", short_help="Write episodes from npz, MP4 or Minari files.")
@click.argument("sources", nargs=-1, required=True, type=_new)
@click.option(
    "--env", required=True, metavar="NAME", shell_complete=complete_environment,
    help="The environment in which they were recorded.",
)  # fmt: skip
# Bounds of the networks' frames; see wm/settings/collect.py.
@click.option("--size", type=Number(low=32, high=128), default=64, metavar="N", help="Side of the frames.  [64]")
@click.option("--gray", is_flag=True, help="One channel of brightness.")
@click.option(
    "--observation", type=OneOf(["rgb", "foreground", "motion"]), default="rgb", show_default=True,
    help="What frames show of the pictures, as for wm collect.",
)  # fmt: skip
@click.option(
    "--action-space", type=OneOf(["auto", "discrete", "continuous"]), default="auto", show_default=True,
    help="Actions, where the environment has both.",
)  # fmt: skip
@click.option(
    "--action-repeat", type=Number(low=1, high=16), default=1, metavar="N", show_default=True,
    help="Environment steps that each action took.",
)  # fmt: skip
@click.option("--policy", default="imported", metavar="NAME", show_default=True, help="Who played, for the recipe.")
@_out
@_shared
def import_command(
    sources: tuple[Path, ...], out: Path, policy: str, disk_budget: str | None, as_json: bool, **env: Any
) -> None:
    """Write the episodes of files: one .npz an episode, an .mp4 with an .npz of the same name beside it, or folders of
    Minari datasets. docs/formats.md has the keys. Pictures are shrunk as wm collect does it.

    Example: wm data import mine/*.npz --env Pong --out data/Pong.mine.zarr
    """
    from stages.session import Session
    from wm.envs.registry import EnvConfig
    from wm.pipeline.new_datasets import import_from

    imported = import_from(sources, EnvConfig(env.pop("env"), **env), policy, Session(env="").runtime)
    _write([(out, imported)], disk_budget, as_json)


def _write(targets: "Sequence[tuple[Path, NewDataset]]", disk_budget: str | None, as_json: bool) -> None:
    """Write the datasets that are not there yet, and print what became of each."""
    from stages.session import Session
    from wm.pipeline.new_datasets import write_datasets

    session = Session(env="", disk_limit=None if disk_budget is None else parse_size(disk_budget, "--disk-budget"))
    results = write_datasets(session, targets)
    if as_json:
        console.print_json({"datasets": [result.as_json() for result in results]})
    else:
        console.echo("\n".join(result.text(console.wrap) for result in results))
