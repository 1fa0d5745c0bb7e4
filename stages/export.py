"""`wm export`: episodes in the formats of other libraries."""

from pathlib import Path

import click

from stages import console
from wm import extras
from wm.errors import UsageProblem

EXTRA = {"minari": "minari", "mp4": "mp4"}  # that a format needs


@click.command(name="export")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--to", "kind", type=click.Choice(["npz", "minari", "mp4"]), required=True, help="The format.")
@click.option("--episodes", default=None, metavar="LIST", help="Which episodes, such as 0,7,20-25, or all.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="The folder  [default: data/exports/...].")
def command(path: Path, kind: str, episodes: str | None, out: Path | None) -> None:
    """Write episodes in a format of other libraries. Minari and mp4 need the extras of these names.

    Example: wm export data/Pong.zarr --to npz --episodes 0-9
    """
    console.echo(str(export(path, kind, episodes, out)))


def export(path: Path, kind: str, asked: str | None, out: Path | None) -> Path:
    """Write the episodes to a new folder, whole or not at all; by default `data/exports/<name>-<kind>`."""
    if kind in EXTRA:
        extras.require(EXTRA[kind], f"--to {kind}")
    import math

    from wm.artifacts import durable, locks
    from wm.artifacts.disk import DiskBudget
    from wm.episodes import selection
    from wm.episodes.dataset import Dataset
    from wm.episodes.export import write_minari, write_npz
    from wm.report.video import write_mp4

    dataset = Dataset.open(path)
    rows = selection.select(dataset, asked or "all")
    target = out or path.parent / "exports" / f"{path.stem}-{kind}"
    _require_free(target)
    raw = int(dataset.rows * math.prod(dataset.frame_shape) * len(rows) / dataset.episodes)
    # Minari stores raw frames; npz and mp4 compress these games' frames at least twentyfold.
    DiskBudget(target).require(raw if kind == "minari" else raw // 20, 0, f"exporting {len(rows)} episodes")
    write = {"npz": write_npz, "minari": write_minari, "mp4": write_mp4}[kind]
    with locks.exclusive(target):  # another export to this folder must not sweep what this one stages
        _require_free(target)
        durable.sweep(target.parent, target.name)
        staged = durable.staging_path(target)
        staged.mkdir()
        try:
            with console.progress(f"export {path.name}", len(rows), "episodes") as bar:
                done = 0
                for batch in selection.read(dataset, rows):
                    write(staged, dataset, batch)
                    done += len(batch)
                    bar.update(done)
            durable.commit_folder(staged, target)
        except BaseException:
            durable.remove(staged)
            raise
    return target


def _require_free(target: Path) -> None:
    """Raise UsageProblem if something exists at `target`."""
    if target.exists():
        raise UsageProblem(f"{target} exists; remove it, or give another folder with --out.")
