"""`wm clean`: removes what no command reads again, and on request what can be made again."""

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages import console
from stages.ls import default_roots
from stages.parameter_types import ExistingPath, mount
from wm.artifacts import links
from wm.errors import NotPermitted
from wm.units import format_size

if TYPE_CHECKING:
    from wm.episodes.leftovers import Leftover


@click.command(name="clean")
@click.argument("paths", type=ExistingPath(addresses=True), nargs=-1)
@click.option("--quarantine", is_flag=True, help="Also parts that `wm verify --repair` set aside.")
@click.option("--unfinished", is_flag=True, help="Also unfinished work.")
@click.option("--archive", is_flag=True, help="Also archived artifacts of other recipes.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(paths: tuple[Path | str, ...], dry_run: bool, as_json: bool, **requested: bool) -> None:
    """Remove files of killed processes, also at an s3:// address, and show the space freed  [default: data runs].

    Example: wm clean --dry-run
    """
    from wm.episodes import leftovers, stored

    kinds = {*leftovers.USELESS, *(kind for kind, enabled in requested.items() if enabled)}
    roots = [path for path in paths if isinstance(path, Path)] if paths else default_roots()
    everything = leftovers.find(roots)
    mirrors = [mount(path) for path in paths if isinstance(path, str)]
    everything += [leftover for mirror in mirrors for leftover in stored.find_leftovers(mirror, time.time())]
    removable = [leftover for leftover in everything if leftover.kind in kinds]
    removed, in_use, refused = (removable, [], []) if dry_run else stored.remove(removable)
    if as_json:
        listed = [{"path": str(each.path), "kind": each.kind, "bytes": each.bytes} for each in removed]
        lists = {"removed": [] if dry_run else listed, "would_remove": listed if dry_run else []}
        skipped = {"in_use": [str(each.path) for each in in_use], "refused": [str(each.path) for each in refused]}
        console.print_json({**lists, **skipped, "bytes": _size(removed)})
    else:
        for leftover in removed:
            text = f"{leftover.path}: {format_size(leftover.bytes)}, {leftovers.KINDS[leftover.kind]}"
            console.echo(console.wrap(text, indent=""))
        for leftover in in_use:
            console.echo(console.wrap(f"{leftover.path}: not removed, a running process holds its lock", indent=""))
        console.echo(f"{'would free' if dry_run else 'freed'} {format_size(_size(removed))}")
        for kind in sorted({leftover.kind for leftover in everything} - kinds):
            size = _size([leftover for leftover in everything if leftover.kind == kind])
            console.echo(f"{format_size(size)} more with --{kind}: {leftovers.KINDS[kind]}")
    if refused:
        names = ", ".join(str(each.path) for each in refused[:3]) + ", ..." * (len(refused) > 3)
        raise NotPermitted(
            f"the operating system did not let {names} be removed; expected files that may be deleted, so change their "
            "permissions and run `wm clean` again."
        )
    if closed := next((folder for root in roots for folder in links.closed(root)), None):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(closed))  # what is in it was not looked at


def _size(leftovers: "Sequence[Leftover]") -> int:
    return sum(leftover.bytes for leftover in leftovers)
