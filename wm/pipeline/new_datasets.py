"""Datasets that are written whole, from others or from files: `wm data`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from wm import extras
from wm.artifacts import locks
from wm.envs.imported_frames import ImportedFrames
from wm.envs.registry import EnvConfig
from wm.episodes import new_datasets
from wm.episodes.importing import Import
from wm.episodes.new_datasets import NewDataset
from wm.episodes.recordings import extra_of
from wm.episodes.summary import summarize
from wm.pipeline.session import Session
from wm.pipeline.stage import CREATED, UP_TO_DATE, Result
from wm.rollouts.collection import compared
from wm.runtime import Runtime
from wm.units import format_size


def import_from(sources: Sequence[Path], env: EnvConfig, policy: str, runtime: Runtime) -> Import:
    """The episodes of files, as `env` would show them. Raises MissingPackage for an extra that reading them needs."""
    if extra := extra_of(sources):
        extras.require(extra, f"importing {sources[0]}")
    frames = ImportedFrames(env)
    return Import(sources, compared(env, runtime).as_recipe(env.actions), policy, frames)


def write_datasets(session: Session, targets: Sequence[tuple[Path, NewDataset]]) -> list[Result]:
    """Write the datasets that are not there yet, each whole or not at all. Raises UsageProblem for a target that is
    something else, and DiskProblem before anything is written."""
    new_datasets.require_targets(targets)
    if waiting := [new for path, new in targets if not new_datasets.is_written(path, new)]:
        new_datasets.require_disk(waiting, session.budget(targets[0][0]))
    return [_write(session, path, new) for path, new in targets]


def _write(session: Session, path: Path, new: NewDataset) -> Result:
    runtime = session.runtime
    began = runtime.clock()
    with locks.exclusive(path):
        if new_datasets.is_written(path, new):
            return _result(path, UP_TO_DATE, 0)
        provenance = partial(session.provenance, began)
        with runtime.progress(f"write {path.name}", new.episodes, "episodes") as progress:
            new_datasets.write(path, new, session.budget(path), provenance, progress.update)
        return _result(path, CREATED, runtime.clock() - began)


def _result(path: Path, status: str, seconds: float) -> Result:
    summary, dataset = summarize(path)
    metrics = {
        "episodes": summary.episodes,
        "rows": summary.frames,
        "mean_return": summary.mean_return,
        "bytes": summary.bytes,
    }
    text = (
        f"{summary.episodes} episodes, {summary.frames:,} frames, mean return {summary.mean_return:.1f}, "
        f"{format_size(summary.bytes)}; {summary.origin}"
    )
    return Result("data", status, path, path.parent, dataset.fingerprint, metrics, text, seconds)
