"""`wm pull`: a run that somebody published, checked like a stranger's."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages import console
from stages.parameter_types import GivenPath
from wm.artifacts.workspace import env_slug
from wm.errors import UsageProblem
from wm.units import format_size, parse_size

if TYPE_CHECKING:
    from wm.sharing.receive import Received


@click.command(name="pull")
@click.argument("source")
@click.option("--run", type=GivenPath(), default=None, help="The run's folder.  [default: runs/<Env>]")
@click.option("--data", type=GivenPath(), default=None, help="Where its episodes go.  [default: data/<Env>.zarr]")
@click.option("--max-size", default="200MB", metavar="SIZE", show_default=True, help="Refuse a run that is larger.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(source: str, run: Path | None, data: Path | None, max_size: str, as_json: bool) -> None:
    """Bring a run here that `wm push` published: a folder, a .zip file or its address, hf://USER/NAME, s3://BUCKET/PREFIX.

    Every file is checked against the list of contents, and everything is opened, before a command can see it.

    Example: wm pull shared/Pong
    """
    from stages.session import Session
    from wm import extras
    from wm.sharing.places import open_place
    from wm.sharing.receive import pull

    extras.require_versions()
    for name, target in (("--run", run), ("--data", data)):
        if target and target.resolve() == Path.cwd():  # it would be replaced under this process
            raise UsageProblem(f"{name} is the working folder; name a folder in it, or go to another one first.")
    size = parse_size(max_size, "--max-size")
    place = open_place(source, max_size=size)
    received = pull(place, run, data, size, Session(env="").runtime)
    if as_json:
        console.print_json(_facts(received))
    else:
        console.echo(_text(received))


def _facts(received: "Received") -> dict[str, Any]:
    contents, data = received.contents, received.data
    return {
        "status": received.status,
        "run": str(received.run),
        "data": str(data) if data else None,
        "env": contents.env,
        "artifacts": dict(contents.artifacts),
        "episodes": contents.episodes,
        "trained_on": contents.trained_on,
        "bytes": contents.size,
    }


def _text(received: "Received") -> str:
    contents = received.contents
    text = f"{received.run}: {received.status}, {len(contents.files)} files, {format_size(contents.size)}"
    lines = [console.visible(text, keep="")]
    lines.append(console.wrap(", ".join(contents.names)))
    if received.data:
        what = "was there and is kept" if received.kept_data else f"{contents.episodes} episodes"
        lines.append(console.wrap(f"{received.data}: {what}"))
    if contents.episodes < contents.trained_on:
        lines.append(console.wrap(contents.episodes_along))
    if ":" in contents.env:
        lines.append(console.wrap(f"its environment is {contents.env}: Python must be able to import the module"))
    slug = env_slug(contents.env)
    where = "" if received.run == Path("runs") / slug else f" --run {shlex.quote(str(received.run))}"
    data = received.data if received.data != Path("data") / f"{slug}.zarr" else None
    played = f" --data {shlex.quote(str(data))}" if data else ""  # evaluate needs no episodes
    agent = "" if contents.agent == "controller" else f" --agent {contents.agent}"
    for command in ("play", "evaluate") if contents.can_dream else ("evaluate",):
        flags = f"{agent}{where}{played if command == 'play' else ''}"
        lines.append(console.wrap(f"next: wm {command} --env {shlex.quote(contents.env)}{flags}"))
    return "\n".join(lines)
