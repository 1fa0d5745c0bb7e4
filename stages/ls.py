"""`wm ls`: the datasets and artifacts below folders, in the order of the stages."""

import errno
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stages import console
from stages.parameter_types import ExistingPath, mount
from wm.errors import BadData, UsageProblem
from wm.units import format_size

KINDS = {"damaged": "bad", "unreadable": "bad", "no permission": "bad", "unfinished": "warning"}


@click.command(name="ls")
@click.argument("paths", type=ExistingPath(addresses=True), nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(paths: tuple[Path | str, ...], as_json: bool) -> None:
    """List datasets and artifacts below folders, or datasets below s3:// addresses  [default: data runs].

    The main figure of a dataset or an evaluation is a mean return, n its number of episodes. R2, NLL and other words
    are explained in docs/glossary.md.

    Example: wm ls
    """
    from wm.report.inventory import find

    if file := next((path for path in paths if isinstance(path, Path) and path.is_file()), None):
        raise UsageProblem(f"{file} is a file; expected a folder, such as data or runs.")
    roots = [path for path in paths if isinstance(path, Path)] if paths else default_roots()
    entries = find(roots) + [entry for path in paths if isinstance(path, str) for entry in _stored(path)]
    if as_json:
        console.print_json({"entries": entries})
    elif entries:
        console.echo(table_of(entries))
    else:
        console.echo("nothing yet; run `wm collect --env Pong --episodes 50`")
    unreadable = [entry for entry in entries if entry["kind"] == "unreadable"]
    if unreadable:
        raise BadData(
            f"{unreadable[0]['problem']} `wm verify {shlex.quote(unreadable[0]['path'])}` says what is left of it."
        )
    if closed := next((entry for entry in entries if entry["kind"] == "no permission"), None):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), closed["path"])


def _stored(address: str) -> list[dict[str, Any]]:
    """The datasets at or below an address."""
    from wm.artifacts.object_store import ObjectStore
    from wm.episodes.stored import find_datasets
    from wm.report.inventory import describe_dataset

    entries = []
    for dataset in find_datasets(ObjectStore.open(address)):
        mirror = mount(dataset)
        entries.append(describe_dataset(mirror.folder, mirror.refresh) | {"path": dataset})
    return entries


def default_roots() -> tuple[Path, ...]:
    """`data` and `runs`, as far as they exist."""
    return tuple(path for path in (Path("data"), Path("runs")) if path.is_dir())


def table_of(entries: Sequence[dict[str, Any]]) -> str:
    """The list for people: a line for every folder of datasets or artifacts, and indented what is in it."""
    rows: list[list[str]] = []
    group = ""
    for entry in entries:
        parent, name = _split(entry["path"])
        if parent != group:
            group = parent
            rows.append([group])
        name = f"  {name}"
        rows.append([name, entry["kind"], entry["figure"], entry["finished"][:10], format_size(entry["bytes"])])
    return console.table(["name", "kind", "main figure", "date", "size"], rows, KINDS)


def _split(path: str) -> tuple[str, str]:
    """The folder under which an entry is listed, and its name there: evaluation/<name> and archive/<name> are named
    from their run on."""
    if "://" in path:
        folder, _, name = path.rpartition("/")
        return folder, name
    parent = Path(path).parent
    parent = parent.parent if parent.name in ("evaluation", "archive") else parent
    return str(parent), Path(path).relative_to(parent).as_posix()
