"""`wm export`: episodes, or the models of a run, in the formats of other libraries."""

from collections.abc import Callable
from pathlib import Path

import click

from stages import console
from stages.parameter_types import DatasetPath, GivenPath, OneOf, place_of
from stages.progress import progress
from wm import extras
from wm.errors import UsageProblem

EXTRA = {"minari": "minari", "mp4": "mp4", "onnx": "onnx"}  # that a format needs


@click.command(name="export")
@click.argument("path", type=DatasetPath())
@click.option("--to", "kind", type=OneOf(["npz", "minari", "mp4", "onnx"]), required=True, help="The format.")
@click.option(
    "--episodes", default=None, metavar="LIST", help="Which episodes, such as 0,7,20-25, or all.  [default: all]"
)
@click.option("--agent", default=None, metavar="NAME", help="The C of a run, for onnx.  [default: controller]")
@click.option("--out", type=GivenPath(), default=None, help="The folder  [default: exports/ beside it].")
def command(path: Path, kind: str, episodes: str | None, agent: str | None, out: Path | None) -> None:
    """Write episodes of a dataset as npz, Minari or mp4, or V, M and C of a run as onnx. All but npz need the extras of
    these names.

    Example: wm export data/Pong.zarr --to npz --episodes 0-9
    """
    if kind == "onnx" and episodes is not None:
        raise UsageProblem("--episodes is given but --to onnx writes models; leave it out.")
    if kind != "onnx" and agent is not None:
        raise UsageProblem(f"--agent is given but --to {kind} writes episodes; leave it out.")
    if kind in EXTRA:
        extras.require(EXTRA[kind], f"--to {kind}")
    place = place_of(path)
    target = out or place.parent / "exports" / f"{place.stem}-{kind}"
    _require_free(target)
    if kind == "onnx":
        export_models(path, agent or "controller", target)
    else:
        export_episodes(path, kind, episodes or "all", target)
    console.echo(console.visible(str(target), keep=""))


def export_episodes(path: Path, kind: str, episodes: str, target: Path) -> None:
    """Write the episodes to a new folder, whole or not at all."""
    import math

    import numpy as np

    from wm.artifacts import durable
    from wm.artifacts.disk import DiskBudget
    from wm.episodes import selection
    from wm.episodes.dataset import Dataset
    from wm.episodes.export import write_minari, write_npz
    from wm.episodes.size_estimate import MARGIN
    from wm.report.video import write_mp4

    dataset = Dataset.open(path)
    rows = selection.select(dataset, episodes)
    frames = int(np.diff(dataset.ends, prepend=0)[rows].sum())
    # Minari stores raw frames. How much npz and mp4 compress them depends on the frames, so that is measured.
    raw = frames * math.prod(dataset.frame_shape)
    DiskBudget(target).require(raw if kind == "minari" else 0, 0, f"exporting {len(rows)} episodes")
    write = {"npz": write_npz, "minari": write_minari, "mp4": write_mp4}[kind]

    def fill(folder: Path) -> None:
        with progress(f"export {path.name}", len(rows), "episodes") as bar:
            done = written = 0
            for batch in selection.read(dataset, rows):
                write(folder, dataset, batch)
                done, written = done + len(batch), written + sum(episode.rows for episode in batch)
                rest = int(durable.folder_size(folder) / written * (frames - written) * MARGIN)
                DiskBudget(target).require(rest, 0, f"exporting the other {len(rows) - done} of {len(rows)} episodes")
                bar.update(done)

    _publish(target, fill)


def export_models(path: Path, agent: str, target: Path) -> None:
    """Write the graphs of a run's V, M and C to a new folder, whole or not at all."""
    from wm.artifacts import durable
    from wm.artifacts.disk import DiskBudget
    from wm.report.onnx_files import open_graphs, write_graph

    graphs, facts = open_graphs(path, agent)
    stored = sum(durable.folder_size(path / name) for name in ("vae", "mdnrnn", agent))
    DiskBudget(target).require(stored, 0, f"exporting {path}")

    def fill(folder: Path) -> None:
        with progress(f"export {path.name}", len(graphs), "graphs") as bar:
            for number, (name, graph) in enumerate(graphs.items(), 1):
                write_graph(folder, name, graph, facts)
                bar.update(number)

    _publish(target, fill)


def _publish(target: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a new folder, and rename it to `target`."""
    from wm.artifacts import durable, locks

    with locks.exclusive(target):  # another export to this folder must not sweep what this one stages
        _require_free(target)
        durable.sweep(target.parent, target.name)
        staged = durable.staging_path(target)
        staged.mkdir()
        try:
            fill(staged)
            durable.commit_folder(staged, target)
        except BaseException:
            # Also for a signal: half an export must not stay.
            durable.remove(staged)
            raise


def _require_free(target: Path) -> None:
    """Raise UsageProblem if something exists at `target`."""
    if target.exists():
        raise UsageProblem(f"{target} exists; remove it, or give another folder with --out.")
