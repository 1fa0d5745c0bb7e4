"""The dream beside reality in four pictures, drawn with matplotlib (Agg: no display is needed)."""

import io
from typing import Any

import numpy as np

_DREAM, _REAL = "tab:purple", "tab:green"


def draw(found: dict[str, Any], title: str) -> bytes:
    """A PNG of what stages/fidelity.py measured: whether the dream ranks policies as reality does, whether returns are
    alike, how soon it goes astray, and whether latents vary as much."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), dpi=110, layout="constrained")
    figure.suptitle(title)
    rank, alike, astray, vary = figure.subplots(2, 2).flat
    _rank(figure, rank, found)
    _alike(alike, found)
    _astray(astray, found["open_loop"])
    _vary(vary, found["z_variance"])
    for axes in (rank, alike, astray, vary):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def _rank(figure: Any, axes: Any, found: dict[str, Any]) -> None:
    shown = axes.scatter(found["dream"], found["real"], c=found["generations"], s=22)
    figure.colorbar(shown, ax=axes, label="generation" if found["generations"][-1] else "policy")
    rho, span = found["rho"], found["rho_ci95"]
    told = "undefined" if rho is None else f"{rho:.2f}" + (f" ({span[0]:.2f} to {span[1]:.2f})" if span else "")
    axes.set(title=f"policies: rank correlation {told}", xlabel="return in the dream", ylabel="return in reality")


def _alike(axes: Any, found: dict[str, Any]) -> None:
    everything = found["real_returns"] + found["dream_returns"]
    edges = np.linspace(min(everything), max(everything) + 1e-6, 16)
    for name, color in (("dream", _DREAM), ("real", _REAL)):
        values = found[f"{name}_returns"]
        share = np.full(len(values), 1 / len(values))
        axes.hist(values, edges, weights=share, alpha=0.55, color=color, label=name)
    axes.set(title="the controller's episodes", xlabel="return", ylabel="share")
    axes.locator_params(axis="x", nbins=6)
    axes.legend(frameon=False)


def _astray(axes: Any, open_loop: dict[str, dict[str, float] | None]) -> None:
    known = {int(step): errors for step, errors in open_loop.items() if errors is not None}
    for name, color in (("M", _DREAM), ("persistence", "tab:gray"), ("mean", "tab:orange")):
        if known:
            axes.plot(list(known), [errors[name] for errors in known.values()], marker="o", color=color, label=name)
    axes.set(title="following real actions", xlabel="steps dreamed", ylabel="squared error of z", xscale="log")
    axes.set_xticks(list(known), [str(step) for step in known], minor=False)
    axes.minorticks_off()
    if known:
        axes.legend(frameon=False)


def _vary(axes: Any, variance: dict[str, list[float]]) -> None:
    dream, real = (np.sqrt(variance[name]) for name in ("dream", "real"))
    top = 1.05 * max(dream.max(), real.max())
    axes.plot([0, top], [0, top], color="tab:gray", linewidth=1)
    axes.scatter(real, dream, s=22, color=_DREAM)
    axes.set(title="deviation of every latent", xlabel="in reality", ylabel="in the dream")
    axes.set(xlim=(0, top), ylim=(0, top))
