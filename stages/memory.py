"""`wm memory`: did the memory of a training grow, where, and why."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from stages import console
from wm.artifacts import durable
from wm.errors import MissingInput
from wm.report.plots import Curve, draw
from wm.telemetry import heap_snapshot as census
from wm.telemetry import metrics_log as metrics
from wm.telemetry.trend import column, judge, phases
from wm.units import format_size

SHOWN = ("rss_anon_mb", "buffers_mb", "unexplained_mb", "cuda_allocated_mb", "cuda_reserved_mb")
COLUMNS = (*SHOWN, "children_mb", "cuda_blocks_small")
PLOT = "memory.png"


def memory(folder: Path) -> list[dict[str, Any]]:
    """What is known of every training below a run's folder, or of the one training that is given; its plot is written
    beside its metrics. Raises MissingInput where there is none."""
    found = [part for part in _trainings(folder) if any("rss_anon_mb" in line for line in metrics.read(part))]
    if not found:
        raise MissingInput(f"{folder} has no {metrics.NAME}; give a run such as runs/Pong, or a training in it.")
    return [_of(part) for part in found]


def _trainings(folder: Path) -> list[Path]:
    if (folder / metrics.NAME).is_file():
        return [folder]
    found = (path.parent for pattern in ("*", "*/*") for path in folder.glob(f"{pattern}/{metrics.NAME}"))
    return sorted(path for path in found if "archive" not in path.parts)


def _of(folder: Path) -> dict[str, Any]:
    lines = metrics.read(folder)
    verdict = judge(lines)
    table = [
        {"phase": name, "column": key, **asdict(found)}
        for name, part in phases(lines).items()
        for key in COLUMNS
        if (found := column(part, key)) is not None
    ]
    curves = []
    for key in SHOWN:
        told = [line for line in lines if key in line]
        if told:
            curves.append(Curve(key.removesuffix("_mb"), [line["step"] for line in told], [line[key] for line in told]))
    durable.write_bytes(folder / PLOT, draw(curves, f"{folder}: {verdict.word}", "step", "MB"))
    return {
        "training": str(folder),
        "verdict": verdict.word,
        "reason": verdict.reason,
        "growth": table,
        "grew": [{"what": what, "bytes": size, "count": count} for what, size, count in census.growth(folder)[:10]],
        "plot": str(folder / PLOT),
    }


def table_of(facts: list[dict[str, Any]]) -> str:
    """The same for people."""
    lines: list[str] = []
    for one in facts:
        lines += [f"{one['training']}: {one['verdict']}", f"  {one['reason']}"]
        rows = [
            [
                row["phase"],
                row["column"].removesuffix("_mb"),
                f"{row['points']}",
                f"{1000 * row['slope']:+.3f}",
                f"{1000 * row['low']:+.3f} to {1000 * row['high']:+.3f}",
                f"{row['drift']:+.1f}",
                f"{row['correlation']:+.2f}",
            ]
            for row in one["growth"]
        ]
        header = ["phase", "what", "readings", "kB a step", "95 % interval", "MB in all", "correlation with steps"]
        lines.append(console.table(header, rows))
        for found in one["grew"]:
            lines.append(f"  grew by {format_size(found['bytes'])}: {found['what']}, {found['count']:+d}")
        lines.append(f"  {one['plot']}")
    return "\n".join(lines)
