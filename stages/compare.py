"""`wm compare`: runs side by side, in a table and in one plot."""

from pathlib import Path
from typing import Any

from stages import console
from stages.report import found_runs
from wm.artifacts import durable
from wm.artifacts.recipe import differences
from wm.report.plots import draw
from wm.report.run_summary import RunSummary
from wm.stats import Score


def compare(paths: tuple[Path, ...], out: Path) -> list[dict[str, Any]]:
    """What is known of each run; the plot of their searches is written to `out`."""
    chapters = [RunSummary.of(folder) for folder in found_runs(paths)]
    curves = [curve for chapter in chapters if (curve := chapter.validations(str(chapter.run)))]
    durable.make_folder(out.parent)
    durable.write_bytes(out, draw(curves, "validation of the search's mean", "generation", "return"))
    return [_facts(chapter) for chapter in chapters]


def table_of(facts: list[dict[str, Any]]) -> str:
    """Runs as columns, and below which settings differ from the first run's."""
    names = list(dict.fromkeys(name for one in facts for name in one["figures"]))
    rows = [[name, *(str(one["figures"].get(name, "–")) for one in facts)] for name in names]
    lines = [console.table(["", *(one["run"] for one in facts)], rows)]
    first = facts[0]
    for other in facts[1:]:
        for stage in sorted(first["recipes"].keys() & other["recipes"].keys()):
            if differs := differences(first["recipes"][stage], other["recipes"][stage]):
                lines.append(f"{stage}, {first['run']} -> {other['run']}: {', '.join(differs)}")
    return "\n".join(lines)


def _facts(chapter: RunSummary) -> dict[str, Any]:
    found, figures = chapter.artifacts, dict[str, Any]()
    if score := chapter.score:
        figures["test return"] = str(Score(score["mean"], score["ci95"], 0))
        figures["test episodes"] = score["episodes"]
        figures["env steps"] = f"{score['env_steps']:,}"
        figures["random policy"] = str(Score(score["random"]["mean"], score["random"]["ci95"], 0))
    if vae := found.get("vae"):
        figures["V: squared error"] = f"{vae.metrics['validation_error']:.2f}"
        for name, reading in (vae.metrics.get("probe") or {}).items():
            if reading["r2"] is not None:
                figures[f"V reads {name} (R2)"] = f"{reading['r2']:.2f}"
    if mdnrnn := found.get("mdnrnn"):
        figures["M: NLL a dimension"] = f"{mdnrnn.metrics['nll']:.3f}"
        for steps in ("1", "15"):
            if ahead := mdnrnn.metrics["open_loop"].get(steps):
                figures[f"M: error {steps} steps ahead"] = f"{ahead['M']:.3f}"
    if controller := found.get("controller"):
        figures["C: validation return"] = f"{controller.metrics['validation_return']:.1f}"
        figures["C: parameters"] = f"{controller.metrics['parameters']:,}"
    if (dream := found.get("dream")) and dream.metrics["rho"] is not None:
        figures["dream: rank correlation"] = f"{dream.metrics['rho']:.2f}"
    return {
        "run": str(chapter.run),
        "figures": figures,
        "recipes": {name: artifact.manifest["recipe"] for name, artifact in found.items()},
    }
