"""`wm verify`: every checksum of a dataset, an artifact, or everything below a folder."""

import errno
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages import console
from stages.parameter_types import ExistingPath, mount
from wm.errors import BadData, UsageProblem

if TYPE_CHECKING:
    from wm.episodes.integrity import Report


@click.command(name="verify")
@click.argument("path", type=ExistingPath(addresses=True))
@click.option("--repair", is_flag=True, help="Set broken parts of datasets aside, so that the rest is usable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(path: Path | str, repair: bool, as_json: bool) -> None:
    """Check every checksum of a dataset, an artifact, or everything below a folder; or of a dataset at s3://.

    Example: wm verify data/Pong.zarr
    """
    from wm.episodes.integrity import verify

    report = _verify_stored(path, repair) if isinstance(path, str) else verify(path, repair)
    if as_json:
        checked = [{"path": str(c.folder), "files": c.files, "problem": c.problem} for c in report.checked]
        closed = [str(folder) for folder in report.closed]
        console.print_json({"checked": checked, "repaired": report.repaired, "not_permitted": closed})
    else:
        for action in report.repaired:
            console.echo(console.visible(f"repaired: {action}", keep=""))
        for result in report.checked:
            text = console.wrap(result.problem or f"{result.folder}: {_agreement(result.files)}", indent="")
            console.echo(console.color(text, "bad") if result.problem else text)
        for folder in report.closed:
            console.echo(console.color(console.wrap(f"{folder} was not checked: no permission.", indent=""), "bad"))
    if report.damaged:
        hint = "" if repair else f" `wm verify {shlex.quote(str(path))} --repair` sets broken parts of datasets aside."
        if isinstance(path, str):
            hint = " Without the manifest of a broken part, `wm collect` plays its episodes again."
        count = f"{len(report.damaged)} of {len(report.checked)}"
        raise BadData(f"{count} are damaged, first: {report.damaged[0].problem}{hint}")
    if report.closed:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(report.closed[0]))


def _verify_stored(address: str, repair: bool) -> "Report":
    from wm.episodes.integrity import Report
    from wm.episodes.stored import check

    if repair:
        raise UsageProblem(
            f"{address} is in an object store, where nothing is set aside; remove the manifest of a broken part, and "
            f"run `wm clean {address} --unfinished` and `wm collect`."
        )
    return Report(check(mount(address)), [], [])


def _agreement(files: int) -> str:
    return "1 file agrees with its checksum" if files == 1 else f"{files} files agree with their checksums"
