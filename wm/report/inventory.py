"""Datasets and artifacts below folders: kind, main figure, date and size of each, and everything known of one."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.artifacts import durable, links, manifest, runs
from wm.artifacts.runs import Artifact
from wm.episodes.archive import read_provenance
from wm.episodes.dataset import Dataset
from wm.episodes.integrity import find_closed, find_datasets, find_links
from wm.episodes.parts import KIND as PART
from wm.episodes.parts import ROOT_KIND as EPISODES
from wm.episodes.schema import part_range
from wm.episodes.summary import summarize
from wm.errors import BadData, MissingInput, WmError
from wm.report.run_summary import format_score
from wm.report.sections import visible_probes

BINS = 12  # of the histogram of a dataset's returns
ORDER = (
    "vae",
    "latents",
    "mdnrnn",
    "controller",
    "dreamer",
    "dream",
    "evaluation",
    "film",
    "archive",
)  # as they are made


def find(roots: Sequence[Path]) -> list[dict[str, Any]]:
    """Everything with a manifest below the roots, datasets without one, and unfinished work: folder by folder, in the
    order of the stages; links in runs as `damaged`, and folders that may not be read as `no permission`. Datasets that
    cannot be opened come first, as `unreadable`."""
    entries = []
    for root in roots:
        datasets = {path for path in find_datasets(root) if path.is_relative_to(root)}
        linked, closed = set(find_links(root)), set(find_closed(root))
        paths = list(links.walk(root))
        folders = {path.parent for path in paths if path.name == manifest.NAME} | datasets | linked | closed
        folders |= {path for path in paths if path.name.endswith(".partial")}
        for folder in sorted(folders, key=lambda folder: _position(folder.relative_to(root))):
            pieces = folder.relative_to(root).parts
            hidden = any(piece.startswith(".") for piece in pieces)
            inside = any(piece.endswith(".partial") for piece in pieces[:-1])
            if not hidden and not inside and part_range(folder.name) is None:
                entry = _entry_of_link(folder) if folder in linked else _entry(folder)
                if folder in closed:
                    entry |= {"kind": "no permission", "figure": "", "problem": f"no permission for {folder}"}
                unreadable = entry["kind"] == "damaged" and folder in datasets
                entries.append(entry | ({"kind": "unreadable"} if unreadable else {}))
    return sorted(entries, key=lambda entry: entry["kind"] != "unreadable")


def _position(below: Path) -> tuple[Any, ...]:
    """Sorts runs by name, and a run's artifacts by stage: `controller-untrained` next to `controller`."""
    ranks = {piece: [k for k, name in enumerate(ORDER) if piece.startswith(name)] for piece in below.parts}
    return tuple((max(ranks[piece], default=len(ORDER)), piece) for piece in below.parts)


def describe_dataset(mirrored: Path, refresh: Callable[[], None]) -> dict[str, Any]:
    """The entry of a dataset in an object store, by the folder that mirrors it; damage is found when it is brought up
    to date."""
    try:
        refresh()
    except BadData as error:
        # Listed as unreadable: `wm ls` must show what is there.
        damaged = {"kind": "unreadable", "figure": "wm verify names it", "finished": "", "problem": str(error)}
        return {"path": str(mirrored), "bytes": 0, **damaged}
    entry = _entry(mirrored)
    if entry["kind"] != EPISODES:
        return entry | {"kind": "unreadable"}
    return entry | {"bytes": Dataset.open(mirrored).bytes}


def _entry_of_link(link: Path) -> dict[str, Any]:
    damaged = {"kind": "damaged", "figure": "wm verify names it", "finished": "", "problem": links.problem(link)}
    return {"path": str(link), "bytes": 0, **damaged}


def _entry(folder: Path) -> dict[str, Any]:
    entry = {"path": str(folder), "kind": "unfinished", "bytes": 0, "figure": "", "finished": "", "problem": ""}
    try:
        entry["bytes"] = durable.folder_size(folder)
        if folder.name.endswith(".partial"):
            return entry
        kind = _kind(folder)
        if kind == EPISODES:
            summary, _ = summarize(folder)
            whole = summary.unit == "episode"
            figure = f"{summary.mean_return:.1f} (n={summary.episodes})" if whole else f"{summary.steps:,} steps"
            finished = [str(line.get("finished", "")) for line in read_provenance(folder)]
            return entry | {"kind": kind, "figure": figure, "finished": max(finished, default="")}
        artifact = runs.read(folder, kind)
        finished_at = str(artifact.manifest["provenance"]["finished"])
        return entry | {"kind": kind, "figure": _figure(kind, artifact), "finished": finished_at}
    except (WmError, OSError, KeyError, TypeError, ValueError) as error:
        # One damaged artifact must not hide the others.
        problem = str(error) if isinstance(error, WmError | OSError) else f"{folder / manifest.NAME} lacks {error}."
        return entry | {"kind": "damaged", "figure": "wm verify names it", "problem": problem}


def _figure(kind: str, artifact: Artifact) -> str:
    """The figure by which artifacts of a kind are compared, in at most about 21 characters."""
    metrics = artifact.metrics
    match kind:
        case "vae":
            probes = list(visible_probes(artifact).values())
            error = f"error {metrics['validation_error']:.1f}"
            return f"R2 {min(probes):z.2f} to {max(probes):z.2f}" if probes else error
        case "latents":
            return f"{metrics['rows']:,} rows"
        case "mdnrnn":
            return f"NLL {metrics['nll']:.2f}, lin {metrics['nll_linear']:.2f}"
        case "controller":
            return f"validation {metrics['validation_return']:.1f}"
        case "dreamer":
            return f"{metrics['env_steps']:,} steps"
        case "dream" if metrics.get("rho") is not None:
            return f"rank corr. {metrics['rho']:.2f}"
        case "evaluation":
            return f"{format_score(metrics)} (n={metrics['episodes']})"
    return ""


def _kind(folder: Path) -> str:
    if not (folder / manifest.NAME).is_file():
        inside = sorted(path.parent for path in folder.glob(f"*/{manifest.NAME}"))
        if not folder.exists():
            problem = "does not exist; `wm ls` shows what there is"
        elif inside:
            problem = f"is no artifact itself; give one in it, such as {inside[0]}"
        else:
            problem = f"is neither a dataset nor a finished artifact; expected a {manifest.NAME} in it"
        raise MissingInput(f"{folder} {problem}.")
    try:
        return str(manifest.read_json(folder / manifest.NAME)["kind"])
    except (KeyError, TypeError):
        raise BadData(f"{folder / manifest.NAME} is not a manifest of wm; run the stage again.") from None


def describe(path: Path) -> dict[str, Any]:
    """Everything known of a dataset or an artifact, as plain values."""
    kind = _kind(path)
    if kind == PART:
        raise MissingInput(f"{path} is a part of the dataset {path.parent}; give that.")
    if kind != EPISODES:
        own = {"path": str(path), "bytes": durable.folder_size(path)}
        return own | runs.read_whole(path, kind).manifest | own
    summary, dataset = summarize(path)
    counts, edges = _histogram(dataset.table["return"])
    return {
        "kind": kind,
        **summary.as_json(),
        "returns": {"edges": edges.tolist(), "counts": counts.tolist()},
        "recipe": dataset.recipe,
        "provenance": read_provenance(path),
    }


def _histogram(returns: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The numbers of returns in BINS equal intervals, and their edges; in one interval where all are equal, or where
    floats are too coarse to divide theirs, as for 1e17 and the next number."""
    if not len(returns):
        return np.zeros(0), np.zeros(0)
    low, high = returns.min(), returns.max()
    if low < high:
        # numpy refuses bins where floats are too coarse.
        with suppress(ValueError):
            return np.histogram(returns, bins=BINS)
    return np.array([len(returns)]), np.array([low, high])
