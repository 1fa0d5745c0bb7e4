"""`wm ls` and `wm info`: what there is, and what is in it."""

from pathlib import Path
from typing import Any

import numpy as np

from stages import console
from wm.artifacts import durable, manifest
from wm.episodes.archive import read_provenance
from wm.episodes.parts import ROOT_KIND as EPISODES
from wm.episodes.schema import part_range
from wm.episodes.summary import Summary, summarize
from wm.errors import BadData, MissingInput, WmError
from wm.units import format_duration, format_size

BARS = 12


def listed(roots: list[Path]) -> list[dict[str, Any]]:
    """Everything with a manifest below the roots, finished or not, in the order of paths."""
    found: list[dict[str, Any]] = []
    for root in roots:
        for folder in sorted({path.parent for path in root.rglob(manifest.NAME)} | set(root.rglob("*.partial"))):
            hidden = any(piece.startswith(".") for piece in folder.relative_to(root).parts)
            inside = any(piece.endswith(".partial") for piece in folder.relative_to(root).parts[:-1])
            if not hidden and not inside and part_range(folder.name) is None and folder.is_dir():
                found.append(_line(folder))
    return found


def _line(folder: Path) -> dict[str, Any]:
    size = durable.folder_size(folder)
    line = {"path": str(folder), "kind": "unfinished", "bytes": size, "holds": "", "finished": ""}
    if folder.name.endswith(".partial"):
        return line | {"holds": "the same command continues it"}
    try:
        kind = _kind(folder)
        if kind == EPISODES:
            summary, _ = summarize(folder)
            holds = f"{summary.episodes} episodes, {summary.frames:,} frames, {summary.policy} policy"
            return line | {"kind": kind, "holds": holds}
        body = manifest.read(folder, kind)
        made = body["provenance"]
        holds = f"seed {made['seed']}, {format_duration(made['wall_seconds'])}, {body['fingerprint'][:8]}"
        return line | {"kind": kind, "holds": holds, "finished": made["finished"]}
    except (WmError, KeyError, TypeError) as error:
        return line | {"kind": "damaged", "holds": str(error)}


def _kind(folder: Path) -> str:
    if not (folder / manifest.NAME).is_file():
        raise MissingInput(f"{folder} is neither a dataset nor a finished artifact; expected a {manifest.NAME} in it.")
    try:
        return str(manifest.read_json(folder / manifest.NAME)["kind"])
    except (KeyError, TypeError):
        raise BadData(f"{folder / manifest.NAME} is not a manifest of ours; make the artifact again.") from None


def table_of(lines: list[dict[str, Any]]) -> str:
    """The list for people."""
    cells = [[str(line[key]) for key in ("path", "kind", "holds")] + [format_size(line["bytes"])] for line in lines]
    return console.table(["path", "kind", "holds", "size"], cells)


def info(path: Path) -> dict[str, Any]:
    """All that is known of a dataset or an artifact, as plain values."""
    kind = _kind(path)
    if kind != EPISODES:
        body = manifest.read(path, kind)
        return {"path": str(path), "bytes": durable.folder_size(path), **body}
    summary, dataset = summarize(path)
    returns = dataset.table["return"]
    counts, edges = np.histogram(returns, bins=BARS) if len(returns) else (np.zeros(0), np.zeros(0))
    return {
        "kind": kind,
        **summary.as_json(),
        "returns": {"edges": edges.tolist(), "counts": counts.tolist()},
        "recipe": dataset.recipe,
        "provenance": read_provenance(path),
    }


def describe(found: dict[str, Any]) -> str:
    """`info` for people."""
    if found["kind"] == EPISODES:
        return _describe_dataset(found)
    rows = [("kind", found["kind"]), ("fingerprint", found["fingerprint"]), ("size", format_size(found["bytes"]))]
    groups: dict[str, dict[str, Any]] = {
        "setting": found["recipe"]["settings"],
        "input": found["recipe"]["inputs"],
        "metric": found["metrics"],
        "provenance": found["provenance"],
    }
    for group, values in groups.items():
        rows += [(f"{group} {name}", _short(value)) for name, value in values.items()]
    return f"{found['path']}\n" + console.table(["what", "value"], [list(row) for row in rows])


def _short(value: Any, most: int = 90) -> str:
    text = ", ".join(f"{name} {item}" for name, item in value.items()) if isinstance(value, dict) else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _describe_dataset(found: dict[str, Any]) -> str:
    summary = Summary(**{name: found[name] for name in Summary.__dataclass_fields__})
    packages = found["recipe"].get("packages", {})
    rows = summary.facts()
    rows += [
        ("labels", ", ".join(found["recipe"]["labels"]) or "none"),
        ("packages", ", ".join(f"{name} {number}" for name, number in packages.items())),
    ]
    rows += [
        ("collected", f"up to {line['episodes']} episodes by {line.get('finished', '?')}, `{line.get('command', '?')}`")
        for line in found["provenance"]
    ]
    text = f"{summary.path}\n" + console.table(["what", "value"], [list(row) for row in rows])
    return f"{text}\nreturns\n{_histogram(found['returns'])}" if summary.episodes else text


def _histogram(returns: dict[str, list[float]]) -> str:
    counts, edges = returns["counts"], returns["edges"]
    most = max(counts)
    lines = []
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        bar = "█" * round(40 * count / most) or ("▏" if count else "")
        lines.append(f"  {low:10.1f} to {high:10.1f}  {bar} {int(count) or ''}".rstrip())
    return "\n".join(lines)
