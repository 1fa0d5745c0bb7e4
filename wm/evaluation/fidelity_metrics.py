"""Dream fidelity in few figures: an artifact's metrics, and those metrics as text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wm.artifacts import durable
from wm.errors import BadData
from wm.evaluation.event_rates import EVENTS
from wm.stats import Score, with_interval
from wm.units import format_rate

_PLACES = ("dream", "real")


def summarize_fidelity(fidelity: dict[str, Any]) -> dict[str, Any]:
    """Metrics from what `measure_fidelity` returns: of lists of returns, lengths and variances only their means or
    quantiles. Where V's latents do not move, as with constant frames, the ratio of their variances is None."""
    scores = {
        f"{place}_{name}": Score.of(np.array(fidelity[f"{place}_{name}s"], np.float64))
        for place in _PLACES
        for name in ("return", "length")
    }
    ratio = np.array(fidelity["z_variance"]["dream"]) / np.array(fidelity["z_variance"]["real"])
    return {
        "agent": fidelity["policies"],
        "policies": len(fidelity["dream"]),
        **{name: fidelity[name] for name in ("rho", "rho_ci95", "rho_last_third", "rho_last_third_ci95")},
        **{name: score.mean for name, score in scores.items()},
        **{f"{name}_ci95": score.ci95 for name, score in scores.items()},
        "dream_ended": fidelity["dream_ended"],
        "real_ended": fidelity["real_ended"],
        "z_variance_ratio": np.percentile(ratio, [0, 50, 100]).round(3).tolist() if len(ratio) else None,
        "open_loop": fidelity["open_loop"],
        "events": fidelity["events"],
    }


def require_finite(figures: dict[str, Any], folder: Path) -> None:
    """Raise BadData for figures that are no numbers: of finite weights that are too large to compute with."""
    try:
        # It refuses NaN and Infinity.
        durable.canonical_json(figures)
    except ValueError:
        raise BadData(
            f"the weights in {folder} predict values that are not finite; expected numbers, so restore them or train "
            "again."
        ) from None


def format_returns(metrics: dict[str, Any]) -> str:
    """The mean returns in the dream and in real episodes, in one sentence."""
    dream, real = _intervals(metrics, "return")
    return f"return {dream} in the dream, {real} in real episodes"


def format_fidelity(metrics: dict[str, Any]) -> str:
    """A table with one figure a line, none longer than 80 columns."""
    rows = {name: _intervals(metrics, name) for name in ("return", "length")}
    rates = metrics.get("events", {}).get("rates", {})
    lines = [
        f"  {'':30}{'dream':>14}  {'real':>14}",
        *(f"  {name:30}{dream:>14}  {real:>14}" for name, (dream, real) in rows.items()),
        f"  {'share that terminated':30}{metrics['dream_ended']:>14.2f}  {metrics['real_ended']:>14.2f}",
        *(["  per 1,000 steps of dreams that are given the actions of real episodes:"] if rates else []),
        *(f"  {name:30}{dream:>14}  {real:>14}" for name, dream, real in _events(rates)),
        f"  {'variance of z, dream / real':30}{_ratio(metrics['z_variance_ratio'])}",
        f"  {'rank correlation of returns':30}{_correlation(metrics['rho'], metrics['rho_ci95'])}",
        f"    over {metrics['policies']} policies: {metrics['agent']}",
        f"  {'  of the last third':30}{_correlation(metrics['rho_last_third'], metrics['rho_last_third_ci95'])}",
    ]
    return "\n".join(lines)


def _intervals(metrics: dict[str, Any], name: str) -> tuple[str, str]:
    """A mean and the half-width of its 95 % interval, in the dream and in real episodes; lengths have no decimals."""
    (dream, dream_half), (real, real_half) = (
        (metrics[f"{place}_{name}"], metrics[f"{place}_{name}_ci95"]) for place in _PLACES
    )
    if name == "length":
        return f"{dream:.0f} ± {dream_half:.0f}", f"{real:.0f} ± {real_half:.0f}"
    return with_interval(dream, dream_half), with_interval(real, real_half)


def _events(rates: dict[str, dict[str, float]]) -> list[tuple[str, str, str]]:
    """Rates of dreams along the real episodes. Those in which C acts have the lines above."""
    return [
        (f"  {EVENTS[name]}", format_rate(rate["dream"]), format_rate(rate["real"])) for name, rate in rates.items()
    ]


def _ratio(quantiles: Sequence[float] | None) -> str:
    if quantiles is None:
        return f"{'undefined':>14}  (V's latents do not move)"
    return f"{quantiles[1]:>14.2f}  (median over dimensions)"


def _correlation(rho: float | None, interval: Sequence[float] | None) -> str:
    span = f"  ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    return f"{'undefined':>14}" if rho is None else f"{rho:>14.2f}{span}"
