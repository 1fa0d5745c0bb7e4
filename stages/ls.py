"""`wm ls`: the datasets and artifacts below folders, in the order of the stages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stages import console
from wm.errors import BadData
from wm.units import format_size

KINDS = {"damaged": "bad", "unreadable": "bad", "unfinished": "warning"}


@click.command(name="ls")
@click.argument("paths", type=click.Path(path_type=Path, exists=True), nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(paths: tuple[Path, ...], as_json: bool) -> None:
    """List datasets and artifacts below folders  [default: data runs].

    The main figure of a dataset or an evaluation is a mean return, n its number of episodes.

    Example: wm ls
    """
    from wm.report.inventory import find

    entries = find(paths or default_roots())
    if as_json:
        console.print_json({"entries": entries})
    elif entries:
        console.echo(table_of(entries))
    else:
        console.echo("nothing yet; run `wm collect --env Pong --episodes 50`")
    unreadable = [entry for entry in entries if entry["kind"] == "unreadable"]
    if unreadable:
        raise BadData(f"{unreadable[0]['problem']} `wm verify {unreadable[0]['path']}` says what is left of it.")


def default_roots() -> tuple[Path, ...]:
    """`data` and `runs`, as far as they exist."""
    return tuple(path for path in (Path("data"), Path("runs")) if path.is_dir())


def table_of(entries: Sequence[dict[str, Any]]) -> str:
    """The list for people: a line for every folder of datasets or artifacts, and indented what is in it."""
    rows: list[list[str]] = []
    group = ""
    for entry in entries:
        path = Path(entry["path"])
        # evaluation/<name> and archive/<name> are named from their run on
        parent = path.parent.parent if path.parent.name in ("evaluation", "archive") else path.parent
        if str(parent) != group:
            group = str(parent)
            rows.append([group])
        name = f"  {path.relative_to(parent).as_posix()}"
        rows.append([name, entry["kind"], entry["figure"], entry["finished"][:10], format_size(entry["bytes"])])
    return console.table(["name", "kind", "main figure", "date", "size"], rows, KINDS)
