"""Whether the memory of a training grew: trends by phase, an assessment, and a plot beside its metrics."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from wm.artifacts import durable, links, manifest, runs
from wm.artifacts.disk import explain_refused
from wm.errors import BadData, MissingInput
from wm.report.plots import Curve, draw
from wm.telemetry import heap_snapshot, metrics_log
from wm.telemetry.trend import column_trend, judge, phases

PLOTTED = ("rss_anon_mb", "buffers_mb", "unexplained_mb", "cuda_allocated_mb", "cuda_reserved_mb")
COLUMNS = (*PLOTTED, "children_mb", "cuda_blocks_small")
PLOT = "memory.png"
Log = list[dict[str, Any]]
Growth = list[tuple[str, int, int]]  # what, bytes, count


def memory_facts(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Facts on every training below a run's folder, or on the one training at `folder`; writes its plot beside its
    metrics, where that is permitted. Also a sentence for each that was left out because it is damaged. Raises
    MissingInput where there is none."""
    facts, damaged = list[dict[str, Any]](), list[str]()
    for training in _trainings(folder):
        links.refuse_below(training)
        try:
            log, growth = _checked(training)
        except BadData as error:
            # Told at the end, beside the facts on the others.
            damaged.append(str(error))
            continue
        if any("rss_anon_mb" in line for line in log):
            facts.append(_facts(training, log, growth))
    if not facts and not damaged:
        raise MissingInput(
            f"there is no training in {folder} that measured its memory; expected a run such as runs/Pong, or a "
            "training in it."
        )
    return facts, damaged


def _checked(training: Path) -> tuple[Log, Growth]:
    """The metrics and the growth between heap snapshots. Raises BadData unless all digests agree."""
    if (training / manifest.NAME).exists():
        runs.read_whole(training)
    # The ten that grew most are what a person looks at.
    return metrics_log.read(training), heap_snapshot.growth(training)[:10]


def _trainings(folder: Path) -> list[Path]:
    if (folder / metrics_log.NAME).is_file():
        return [folder]
    folders = (path.parent for pattern in ("*", "*/*") for path in folder.glob(f"{pattern}/{metrics_log.NAME}"))
    trainings = sorted(path for path in folders if "archive" not in path.parts)
    return [links.refuse(path) for path in trainings]


def _facts(folder: Path, log: Log, growth: Growth) -> dict[str, Any]:
    assessment = judge(log)
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
    return {
        "training": str(folder),
        "verdict": assessment.word,
        "reason": assessment.reason,
        "trends": trends,
        "growth": [{"what": what, "bytes": size, "count": count} for what, size, count in growth],
        "plot": _plot(folder, curves, assessment.word),
    }


def _plot(folder: Path, curves: list[Curve], verdict: str) -> str | None:
    """Draw the plot and return its path; None where nothing may be written beside the metrics of another person."""
    try:
        durable.write_bytes(folder / PLOT, draw(curves, f"{folder}: {verdict}", "step", "MB"))
    except OSError as error:
        if not explain_refused(error):
            raise
        return None
    return str(folder / PLOT)
