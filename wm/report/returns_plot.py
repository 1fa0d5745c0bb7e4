"""Returns over the generations of a search, or the iterations of a policy gradient. Episodes of different kinds have
axes of their own: a training episode may be truncated, and a dream has rewards of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wm.evolution.history import History
from wm.report.plots import Curve, Plot, to_png
from wm.stats import Score

Lines = Sequence[dict[str, Any]]
_PLACES = {"real": "the real environment", "dream": "the dream"}


def time_unit(lines: Lines) -> str:
    """What a line stands for: a generation of a search, or an iteration of a policy gradient."""
    return "iteration" if any("policy" in line for line in lines) else "generation"


def validated_in(lines: Lines) -> str:
    """Where the validations of a log were played, real or dream. Those of a search in the dream alone take no steps of
    the real environment."""
    return "dream" if any("validation" in line and not line["env_steps"] for line in lines) else "real"


def draw_returns(history: History, env: str) -> bytes:
    """A PNG of the validated means, and of the candidates' returns."""
    return to_png(search_plots(history.lines), f"{env}: C")


def search_plots(lines: Lines, level: tuple[str, float] | None = None) -> list[Plot]:
    """A plot for each kind of episodes: the validated means, with the `level` of real episodes across, and the
    candidates by where they played. A policy gradient has one policy instead of these."""
    plots, unit = [], time_unit(lines)
    evolved = unit == "generation"
    validated, players = ("mean of the search", "candidates") if evolved else ("likeliest actions", "policy")
    if curve := validation_curve(lines, f"{validated}, 95 % interval"):
        place = validated_in(lines)
        title = f"validation in {_PLACES[place]}, whole episodes"
        plots.append(Plot(unit, "return of a validation episode", [curve], title, level if place == "real" else None))
    for place in ("real", "dream"):
        learner = "dreams" if place == "dream" else "ended episodes"
        if curve := _training_curve(lines, place, "candidates" if evolved else learner):
            title = f"{players} in {_PLACES[place]}, training episodes"
            plots.append(Plot(unit, "return of a training episode", [curve], title))
    return plots


def validation_curve(lines: Lines, name: str) -> Curve | None:
    """The validation return of the search's mean with its 95 % interval; None before the first validation."""
    validated = [line for line in lines if len(line.get("validation", [])) > 1]
    scores = [Score.of(np.array(line["validation"], float)) for line in validated]
    low, high = ([score.mean + sign * score.ci95 for score in scores] for sign in (-1, 1))
    generations = [line["generation"] for line in validated]
    return Curve(name, generations, [score.mean for score in scores], low, high) if validated else None


def _training_curve(lines: Lines, place: str, whose: str) -> Curve | None:
    played = [line for line in lines if line["in"] == place and line["returns"]]
    if not played:
        return None
    mean, low, high = ([float(of(line["returns"])) for line in played] for of in (np.mean, np.min, np.max))
    return Curve(f"mean and range of the {whose}", [line["generation"] for line in played], mean, low, high)
