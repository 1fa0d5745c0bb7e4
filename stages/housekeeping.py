"""The commands that look at what there is and look after it: ls, info, verify, view, report, compare, memory, export,
clean, doctor. Imports nothing heavy."""

from pathlib import Path

import click

from stages import console
from wm.errors import BadData, MissingPackage
from wm.units import format_size

_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
_path = click.argument("path", type=click.Path(path_type=Path))
_paths = click.argument("paths", type=click.Path(path_type=Path, exists=True), nargs=-1)
_episodes = click.option("--episodes", default=None, metavar="LIST", help="Which episodes, such as 0,7,20-25, or all.")
_out = click.option("--out", type=click.Path(path_type=Path), default=None, help="Where to write it.")


def _roots(paths: tuple[Path, ...]) -> list[Path]:
    return list(paths) or [path for path in (Path("data"), Path("runs")) if path.is_dir()]


@click.command()
@_paths
@_as_json
def ls(paths: tuple[Path, ...], as_json: bool) -> None:
    """List datasets and artifacts below folders  [default: data runs].

    Example: wm ls
    """
    from stages.ls import listed, table_of

    lines = listed(_roots(paths))
    if as_json:
        console.print_json({"found": lines})
    else:
        click.echo(table_of(lines) if lines else "nothing yet; begin with `wm collect --env Pong --episodes 50`")


@click.command()
@_path
@_as_json
def info(path: Path, as_json: bool) -> None:
    """Tell what a dataset or an artifact holds and where it came from.

    Example: wm info data/Pong.zarr
    """
    from stages.ls import describe
    from stages.ls import info as find

    found = find(path)
    if as_json:
        console.print_json(found)
    else:
        click.echo(describe(found))


@click.command()
@_path
@click.option("--repair", is_flag=True, help="Set broken parts of datasets aside, so that the rest is usable.")
@_as_json
def verify(path: Path, repair: bool, as_json: bool) -> None:
    """Check every checksum of a dataset, an artifact, or everything below a folder.

    Example: wm verify data/Pong.zarr
    """
    from stages.verify import verify as check

    report = check(path, repair)
    if as_json:
        checked = [{"path": str(c.folder), "files": c.files, "problem": c.problem} for c in report.checked]
        console.print_json({"checked": checked, "repaired": report.repaired})
    else:
        for done in report.repaired:
            click.echo(f"repaired: {done}")
        for found in report.checked:
            click.echo(found.problem or f"{found.folder}: {found.files} files agree with their checksums")
    if report.broken:
        hint = "" if repair else f" `wm verify {path} --repair` sets broken parts of datasets aside."
        count = f"{len(report.broken)} of {len(report.checked)}"
        raise BadData(f"{count} are damaged, first: {report.broken[0].problem}{hint}")


@click.command()
@_path
@_episodes
@_out
def view(path: Path, episodes: str | None, out: Path | None) -> None:
    """Write one HTML page with film strips and reward traces of episodes.

    Example: wm view data/Pong.zarr --episodes 0-9
    """
    from stages.view import view as draw

    click.echo(str(draw(path, episodes, out)))


@click.command()
@_paths
@_out
@_as_json
def report(paths: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Write one HTML page and a Markdown summary about runs, finished or under way  [default: all in runs].

    Example: wm report runs/Pong
    """
    from stages.report import report as write

    page, summary = write(paths or (Path("runs"),), out)
    if as_json:
        console.print_json({"html": str(page), "markdown": str(summary)})
    else:
        click.echo(f"{page}\n{summary}")


@click.command()
@click.argument("paths", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("compare.png"), show_default=True, help="The plot."
)
@_as_json
def compare(paths: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Put runs side by side: a table, the settings in which they differ, and a plot of their searches.

    Example: wm compare runs/Pong runs/Pong.round2
    """
    from stages.compare import compare as find
    from stages.compare import table_of

    facts = find(paths, out)
    if as_json:
        console.print_json({"runs": facts, "plot": str(out)})
    else:
        click.echo(f"{table_of(facts)}\n{out}")


@click.command()
@_as_json
def doctor(as_json: bool) -> None:
    """Look at Python, torch, memory, disk and every environment, and say what is missing and how to get it.

    Example: wm doctor
    """
    from stages.doctor import examine, problems, table_of

    checks = examine()
    if as_json:
        console.print_json({"checks": [check.as_json() for check in checks]})
    else:
        click.echo(table_of(checks))
    if found := problems(checks):
        raise MissingPackage(f"{found[0].what}: {found[0].found}; {found[0].remedy}.")


@click.command()
@_path
@click.option("--to", "kind", type=click.Choice(["npz", "minari", "mp4"]), required=True, help="The format.")
@_episodes
@_out
def export(path: Path, kind: str, episodes: str | None, out: Path | None) -> None:
    """Write episodes in a format of others. Minari and mp4 need the extras minari and mp4.

    Example: wm export data/Pong.zarr --to npz --episodes 0-9
    """
    from stages.export import export as write

    click.echo(str(write(path, kind, episodes, out)))


@click.command()
@_paths
@click.option("--quarantine", is_flag=True, help="Also what `wm verify --repair` set aside.")
@click.option("--unfinished", is_flag=True, help="Also unfinished work.")
@click.option("--archive", is_flag=True, help="Also archived artifacts of other recipes.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@_as_json
def clean(
    paths: tuple[Path, ...], quarantine: bool, unfinished: bool, archive: bool, dry_run: bool, as_json: bool
) -> None:
    """Remove what killed processes left behind, and say what that frees.

    Example: wm clean --dry-run
    """
    from stages.clean import ALWAYS, KINDS, leftovers
    from stages.clean import clean as remove

    asked = {"quarantine": quarantine, "unfinished": unfinished, "archive": archive}
    chosen = {*ALWAYS, *(kind for kind, wanted in asked.items() if wanted)}
    found = leftovers(_roots(paths))
    going = [leftover for leftover in found if leftover.kind in chosen]
    gone, in_use = (going, []) if dry_run else remove(going)
    staying = [leftover for leftover in found if leftover.kind not in chosen]
    freed = sum(leftover.bytes for leftover in gone)
    if as_json:
        listed = [{"path": str(each.path), "kind": each.kind, "bytes": each.bytes} for each in gone]
        console.print_json({"removed": [] if dry_run else listed, "would_remove": listed if dry_run else [],
                            "bytes": freed})  # fmt: skip
        return
    for leftover in gone:
        click.echo(f"{leftover.path}: {format_size(leftover.bytes)}, {KINDS[leftover.kind]}")
    for leftover in in_use:
        click.echo(f"{leftover.path}: stays, a running process holds it")
    click.echo(f"{'would free' if dry_run else 'freed'} {format_size(freed)}")
    for kind in sorted({leftover.kind for leftover in staying}):
        size = sum(leftover.bytes for leftover in staying if leftover.kind == kind)
        click.echo(f"{format_size(size)} more with --{kind}: {KINDS[kind]}")


@click.command()
@_paths
@_as_json
def memory(paths: tuple[Path, ...], as_json: bool) -> None:
    """Say whether the memory of a training grew, where and why, with a plot beside its metrics.

    Example: wm memory runs/Pong
    """
    from stages.memory import memory as find
    from stages.memory import table_of

    facts = [fact for path in paths or (Path("runs"),) for fact in find(path)]
    if as_json:
        console.print_json({"trainings": facts})
    else:
        click.echo(table_of(facts))


COMMANDS = (ls, info, verify, view, report, compare, memory, export, clean, doctor)
