"""The dream against the real environment, in four plots."""

from typing import Any

from wm.report.conclusions import PREDICTORS, whose
from wm.report.plots import Curve, Histogram, Plot, Scatter, to_png


def draw(fidelity: dict[str, Any], title: str) -> bytes:
    """A PNG of what wm/evaluation/dream_fidelity.py measured: whether the dream ranks policies as the real environment
    does, how returns are distributed, how soon the dream diverges, and whether latents vary as much."""
    return to_png(
        [policies(fidelity), _returns(fidelity), open_loop(fidelity["open_loop"]), _deviations(fidelity)], title
    )


def policies(fidelity: dict[str, Any]) -> Plot:
    """The return of every policy in the dream and in the real environment."""
    correlation = f"rank correlation {format_correlation(fidelity)}"
    return Plot(
        "return in the dream",
        "return in the real environment",
        [Scatter(fidelity["dream"], fidelity["real"], ordered=True)],
        title=f"policies: {correlation}",
        note=correlation,
    )


def format_correlation(fidelity: dict[str, Any]) -> str:
    """The rank correlation with its 95 % interval."""
    rho, interval = fidelity["rho"], fidelity["rho_ci95"]
    if rho is None:
        return "undefined"
    return f"{rho:.2f}" + (f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else "")


def _returns(fidelity: dict[str, Any]) -> Plot:
    histograms = [Histogram(name, fidelity[f"{name}_returns"]) for name in ("dream", "real")]
    return Plot("return", "share", histograms, title=f"{whose(fidelity['policies'])} episodes")


def open_loop(errors: dict[str, dict[str, float] | None]) -> Plot:
    """The squared error of M and of every baseline, by the number of steps ahead."""
    known = dict(sorted((int(step), e) for step, e in errors.items() if e is not None))
    curves = [Curve(name, list(known), [e[name] for e in known.values()]) for name in PREDICTORS]
    positive = all(value > 0 for curve in curves for value in curve.y)  # an unstable prediction grows to 1e8
    title = "open-loop prediction of real actions"
    return Plot("steps ahead", "squared error of z", curves, title, x_ticks=list(known), y_log=positive)


def _deviations(fidelity: dict[str, Any]) -> Plot:
    dream, real = ([value**0.5 for value in fidelity["z_variance"][name]] for name in ("dream", "real"))
    title = "standard deviation of every latent"
    return Plot("in the real environment", "in the dream", [Scatter(real, dream)], title=title, diagonal=True)
