"""Whether the memory of a training grew: trends by phase, a verdict, and a plot beside its metrics."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from wm.artifacts import durable, links
from wm.errors import MissingInput
from wm.report.plots import Curve, draw
from wm.telemetry import heap_snapshot, metrics_log
from wm.telemetry.trend import column_trend, judge, phases

PLOTTED = ("rss_anon_mb", "buffers_mb", "unexplained_mb", "cuda_allocated_mb", "cuda_reserved_mb")
COLUMNS = (*PLOTTED, "children_mb", "cuda_blocks_small")
PLOT = "memory.png"


def memory_facts(folder: Path) -> list[dict[str, Any]]:
    """Facts on every training below a run's folder, or on the one training at `folder`; writes its plot beside its
    metrics. Raises MissingInput where there is none."""
    measured = [part for part in _trainings(folder) if any("rss_anon_mb" in line for line in metrics_log.read(part))]
    if not measured:
        raise MissingInput(
            f"{folder} has no {metrics_log.NAME}; expected a run such as runs/Pong, or a training in it."
        )
    return [_facts(part) for part in measured]


def _trainings(folder: Path) -> list[Path]:
    if (folder / metrics_log.NAME).is_file():
        return [folder]
    folders = (path.parent for pattern in ("*", "*/*") for path in folder.glob(f"{pattern}/{metrics_log.NAME}"))
    trainings = sorted(path for path in folders if "archive" not in path.parts)
    return [links.refuse(path) for path in trainings]


def _facts(folder: Path) -> dict[str, Any]:
    links.refuse_below(folder)
    log = metrics_log.read(folder)
    verdict = judge(log)
    trends = [
        {"phase": phase, "column": key, **asdict(trend)}
        for phase, lines in phases(log).items()
        for key in COLUMNS
        if (trend := column_trend(lines, key)) is not None
    ]
    curves = []
    for key in PLOTTED:
        if lines := [line for line in log if key in line]:
            name = key.removesuffix("_mb")
            curves.append(Curve(name, [line["step"] for line in lines], [line[key] for line in lines]))
    durable.write_bytes(folder / PLOT, draw(curves, f"{folder}: {verdict.word}", "step", "MB"))
    growth = heap_snapshot.growth(folder)[:10]
    return {
        "training": str(folder),
        "verdict": verdict.word,
        "reason": verdict.reason,
        "trends": trends,
        "growth": [{"what": what, "bytes": size, "count": count} for what, size, count in growth],
        "plot": str(folder / PLOT),
    }
