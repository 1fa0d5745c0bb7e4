"""Runs side by side: the figures of each, the settings in which they differ, and a plot of their searches."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wm.artifacts.recipe import differences
from wm.report.conclusions import prediction_summary, score_conclusion
from wm.report.plots import draw
from wm.report.returns_plot import time_unit, validated_in
from wm.report.run_summary import TRAININGS, RunSummary, format_score


def compare(summaries: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """The figures and recipes of each run, under the shortest name that tells it from the others."""
    return [_facts(summary, name) for summary, name in zip(summaries, _names(summaries), strict=True)]


def plot_searches(summaries: Sequence[RunSummary]) -> bytes | None:
    """A PNG of the validation returns of C along the trainings; those of a search in the dream alone say so. None where
    no run has any."""
    curves = [
        summary.validations(name + (" (in the dream)" if validated_in(summary.generations) == "dream" else ""))
        for summary, name in zip(summaries, _names(summaries), strict=True)
    ]
    units = dict.fromkeys(time_unit(summary.generations) for summary in summaries if summary.generations)
    if not (shown := [curve for curve in curves if curve is not None]):
        return None
    return draw(shown, "validation of C", " or ".join(units) or "generation", "return")


def different_settings(facts: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Run and stage, and the settings in which it differs from the first run's."""
    first, *others = facts
    lines = []
    for other in others:
        for stage in sorted(first["recipes"].keys() & other["recipes"].keys()):
            if differs := differences(first["recipes"][stage], other["recipes"][stage]):
                lines.append((f"{other['name']} {stage}", ", ".join(differs)))
    return lines


def _names(summaries: Sequence[RunSummary]) -> list[str]:
    return short_names([summary.run for summary in summaries])


def short_names(folders: Sequence[Path]) -> list[str]:
    """The paths without what all have in common; a single run has its folder's name."""
    if len(folders) == 1:
        return [folders[0].name]
    common = os.path.commonpath([folder.resolve().parent for folder in folders])
    return [folder.resolve().relative_to(common).as_posix() for folder in folders]


def _facts(summary: RunSummary, name: str) -> dict[str, Any]:
    artifacts, figures = summary.artifacts, dict[str, Any]()
    if score := summary.score:
        if summary.agent not in TRAININGS:
            figures["agent"] = summary.agent
        figures["test return"] = format_score(score)
        figures["test episodes"] = score["episodes"]
        figures["environment steps"] = f"{score['env_steps']:,}"
        figures["random policy"] = format_score(score["random"])
        figures["against random"] = score_conclusion(score).partition(" than")[0]
    if vae := artifacts.get("vae"):
        figures["V: squared error"] = f"{vae.metrics['validation_error']:.2f}"
        for label, probe in (vae.metrics.get("probe") or {}).items():
            if probe["r2"] is not None:
                figures[f"V: R2 of {label}"] = f"{probe['r2']:z.2f}"
    if mdnrnn := artifacts.get("mdnrnn"):
        metrics = mdnrnn.metrics
        figures["M: NLL per dimension"] = f"{metrics['nll']:.2f} (linear {metrics['nll_linear']:.2f})"
        for steps in ("1", "5", "15"):
            if ahead := metrics["open_loop"].get(steps):
                figures[f"M: error at step {steps}"] = f"{ahead['M']:.3g} (linear {ahead['linear']:.3g})"
        figures["M / best baseline"] = prediction_summary(metrics["open_loop"])
    if controller := artifacts.get("controller"):
        figures["C: validation return"] = f"{controller.metrics['validation_return']:.1f}"
        figures["C: parameters"] = f"{controller.metrics['parameters']:,}"
    if (dream := artifacts.get("dream")) and dream.metrics["rho"] is not None:
        figures["dream: rank correlation"] = f"{dream.metrics['rho']:.2f}"
    return {
        "run": str(summary.run),
        "name": name,
        "figures": figures,
        "older": summary.older,
        "recipes": {name: artifact.manifest["recipe"] for name, artifact in artifacts.items()},
    }
