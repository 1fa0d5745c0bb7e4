"""`wm verify`: every checksum of a dataset, an artifact, or everything below a folder."""

from pathlib import Path

import click

from stages import console
from wm.errors import BadData


@click.command(name="verify")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--repair", is_flag=True, help="Set broken parts of datasets aside, so that the rest is usable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(path: Path, repair: bool, as_json: bool) -> None:
    """Check every checksum of a dataset, an artifact, or everything below a folder.

    Example: wm verify data/Pong.zarr
    """
    from wm.episodes.integrity import verify

    report = verify(path, repair)
    if as_json:
        checked = [{"path": str(c.folder), "files": c.files, "problem": c.problem} for c in report.checked]
        console.print_json({"checked": checked, "repaired": report.repaired})
    else:
        for action in report.repaired:
            console.echo(f"repaired: {action}")
        for result in report.checked:
            text = console.wrap(result.problem or f"{result.folder}: {_agreement(result.files)}", indent="")
            console.echo(console.color(text, "bad") if result.problem else text)
    if report.damaged:
        hint = "" if repair else f" `wm verify {path} --repair` sets broken parts of datasets aside."
        count = f"{len(report.damaged)} of {len(report.checked)}"
        raise BadData(f"{count} are damaged, first: {report.damaged[0].problem}{hint}")


def _agreement(files: int) -> str:
    return "1 file agrees with its checksum" if files == 1 else f"{files} files agree with their checksums"
