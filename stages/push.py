"""`wm push`: a run for others, with a card, in a folder, a zip file, an object store or on the Hugging Face Hub."""

import shlex
from pathlib import Path
from typing import Any

import click

from stages import console
from stages.parameter_types import DatasetPath, GivenPath
from wm.units import format_size, parse_size


@click.command(name="push")
@click.argument("run", type=GivenPath())
@click.argument("target")
@click.option("--agent", default=None, metavar="NAME", help="The controller or Dreamer.  [default: controller]")
@click.option("--episodes", default="4", metavar="N|all", show_default=True, help="Of the dataset, for a look at it.")
@click.option("--data", type=DatasetPath(), default=None, help="V's dataset.  [default: data/<Env>.zarr]")
@click.option("--without", multiple=True, metavar="NAME", help="Leave an artifact out, such as latents or dream.")
@click.option("--private", is_flag=True, help="Create the repository on the Hub as a private one.")
@click.option("--max-size", default="200MB", metavar="SIZE", show_default=True, help="Refuse to publish more.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(
    run: Path, target: str, agent: str | None, episodes: str, data: Path | None, without: tuple[str, ...],
    private: bool, max_size: str, as_json: bool,
) -> None:  # fmt: skip
    """Publish V, M, C, their scores and pictures, and a few episodes, in a folder, a .zip file, at hf://USER/NAME or
    s3://BUCKET/PREFIX.

    A card tells what the agent reached and at what cost. Only files that a manifest lists travel, without the paths of
    this machine. The Hub needs the extra of this name, and a login with `hf auth login`.

    Example: wm push runs/Pong shared/Pong
    """
    from wm.sharing.places import open_place
    from wm.sharing.publish import UP_TO_DATE, push

    size, place = parse_size(max_size, "--max-size"), open_place(target, private)
    name = agent or _only_agent(run)
    private_texts = [str(path) for path in (Path.home(), Path.cwd()) if path != Path(path.anchor)]
    done = push(run, place, name, data, episodes, without, size, private_texts)
    contents = done.contents
    if as_json:
        facts: dict[str, Any] = {"status": done.status, "target": place.name, "env": contents.env}
        facts |= {"artifacts": dict(contents.artifacts), "episodes": contents.episodes}
        console.print_json(facts | {"files": len(contents.files), "bytes": contents.size})
        return
    text = f"{place.name}: {done.status}, {len(contents.files)} files, {format_size(contents.size)}"
    console.echo(console.visible(text, keep=""))
    console.echo(console.wrap(", ".join([*contents.names, f"{contents.episodes} episodes"])))
    if done.status != UP_TO_DATE:
        console.echo(console.wrap(f"others run: wm pull {place.address or shlex.quote(place.name)}"))


def _only_agent(run: Path) -> str:
    """The controller, or the Dreamer of a run that has no controller."""
    lone = (run / "dreamer").is_dir() and not (run / "controller").is_dir()
    return "dreamer" if lone else "controller"
