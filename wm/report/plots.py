"""Plots from one description: PNG for artifacts, SVG for pages. matplotlib renders both and needs no display."""

import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from wm.report.characters import drawable
from wm.report.svg_text import for_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Light and dark. An SVG names the CSS variables, so that it follows the page; a PNG has the light colours.
COLOURS = {
    "paper": ("#fafaf8", "#17181a"),
    "ink": ("#262626", "#e8e8e4"),
    "faint": ("#6b6b66", "#a0a09a"),
    "line": ("#dcdcd5", "#37393c"),
    "panel": ("#f1f1ec", "#202225"),
    "k0": ("#2f6f9f", "#6fb1e0"),
    "k1": ("#b8642b", "#e2965f"),
    "k2": ("#5a8f3c", "#93c572"),
    "k3": ("#8a5aa8", "#c39be0"),
    "k4": ("#777777", "#aaaaaa"),
}
_SERIES = [COLOURS[f"k{number}"][0] for number in range(5)]
_INK, _FAINT, _LINE = (COLOURS[name][0] for name in ("ink", "faint", "line"))
POINTS = 400  # of a curve, at most: a pixel holds no more
MARKED = 30  # a curve with fewer points has markers
WIDTH, HEIGHT = 440, 250  # of an SVG; also its unit, so that text has the size of the page's captions
LONGEST_NAME = 40  # characters in a legend: a run's may have 255
_DPI = 72  # one SVG unit a point
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 28, 40  # margins of an SVG
DECADES = 100.0  # from the smallest to the largest value: on a linear axis most of such a curve lies on the ground
OUTLIER = 4.0  # times the span of the middle 98 % of values, from which on they hide the rest
# matplotlib's defaults, whatever an environment that draws with it, or a person's matplotlibrc, has made of the global
# ones, such as `text.usetex`. A `$` in the name of a run is a `$`.
_PNG_STYLE: list[Any] = ["default", {"text.parse_math": False}]
_SVG_STYLE: list[Any] = [*_PNG_STYLE, {"svg.fonttype": "none", "svg.hashsalt": "wm"}]


@dataclass(frozen=True)
class Curve:
    """A named line; `low` and `high`, if given, are the edges of a band around it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Scatter:
    """Points; later ones have a stronger colour if `ordered`."""

    x: Sequence[float]
    y: Sequence[float]
    ordered: bool = False


@dataclass(frozen=True)
class Histogram:
    """Values, counted as shares of their number, in bins that all histograms of a plot have in common."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True)
class Plot:
    """One pair of axes. `level` is a named dashed line across, `diagonal` the line y = x from 0. With `x_ticks` the
    x axis is logarithmic and has these ticks alone. The y axis is where `y_log` says so or, of curves, where positive
    values span two decades; outliers of curves are clipped, which the plot says. `note` replaces the sentence that
    describes an SVG's series."""

    x_label: str
    y_label: str
    series: Sequence[Curve | Scatter | Histogram]
    title: str = ""
    level: tuple[str, float] | None = None
    diagonal: bool = False
    x_ticks: Sequence[float] = ()
    y_log: bool = False
    note: str = ""


def draw(curves: Sequence[Curve], title: str, x_label: str, y_label: str) -> bytes:
    """A PNG of curves on one pair of axes."""
    return to_png([Plot(x_label, y_label, curves, title)])


def to_png(plots: Sequence[Plot], title: str = "") -> bytes:
    """One plot, or several in rows of two."""
    _import_matplotlib()
    from matplotlib import style
    from matplotlib.figure import Figure

    columns = min(len(plots), 2)
    rows = -(-len(plots) // columns)
    with style.context(_PNG_STYLE):
        # Inches; at 110 dots each they are 770 and 990 pixels wide.
        figure = Figure(figsize=(7, 4) if len(plots) == 1 else (9, 3.5 * rows), dpi=110, layout="constrained")
        figure.suptitle(drawable(title))
        for axes, plot in zip(figure.subplots(rows, columns, squeeze=False).flat, plots, strict=False):
            _draw(axes, _drawable(plot), size=9)
        return figure_png(figure)


def _import_matplotlib() -> None:
    """Import it, whatever MPLBACKEND says: the commands in a notebook's cells inherit one of the notebook's, which may
    not be installed here, and nothing is drawn in a window."""
    try:
        import matplotlib
    except ValueError:
        backend = os.environ.pop("MPLBACKEND", None)
        try:
            import matplotlib  # noqa: F401  # once more, and without it: another fault is raised again
        finally:
            if backend is not None:
                os.environ["MPLBACKEND"] = backend


def figure_png(figure: "Figure") -> bytes:
    """A drawn figure with a palette, which takes a third of the bytes: lines and text have few colours."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas, buffer = FigureCanvasAgg(figure), io.BytesIO()
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def to_svg(plot: Plot) -> str:
    """An `svg` element for a page: text stays text, colours are the page's CSS variables, and the same plot gives the
    same bytes. It has no title, because a page has headings. Empty if the plot has no finite point."""
    _import_matplotlib()
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    if not any(_points(series) for series in plot.series):
        return ""
    plot = _drawable(plot)
    margins = _LEFT / WIDTH, _BOTTOM / HEIGHT, 1 - _RIGHT / WIDTH, 1 - _TOP / HEIGHT
    buffer = io.StringIO()
    with style.context(_SVG_STYLE):
        figure = Figure(figsize=(WIDTH / _DPI, HEIGHT / _DPI), dpi=_DPI)
        figure.subplots_adjust(*margins)
        figure.patch.set_visible(False)
        axes = figure.subplots()
        _draw(axes, replace(plot, title=""), size=11)
        FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    names = {light: name for name, (light, _) in COLOURS.items()}
    return for_page(buffer.getvalue(), names, (WIDTH, HEIGHT), describe(plot), _data(plot, axes))


def describe(plot: Plot) -> str:
    """What an SVG shows, in words, for those who cannot see it."""
    parts = [
        f"{series.name} from {short(series.y[0])} to {short(series.y[-1])}"
        for series in map(_finite, plot.series)
        if isinstance(series, Curve) and series.y
    ]
    if plot.level:
        parts.append(f"{plot.level[0]} {short(plot.level[1])}")
    joint = "over" if parts and not plot.note else "against"
    return f"{plot.y_label} {joint} {plot.x_label}: {plot.note or '; '.join(parts)}"


def short(value: float) -> str:
    """A number for a label: 1,200, 3.5, 0.012, 2e+08."""
    if value and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _data(plot: Plot, axes: Any) -> str:
    """What charts.js needs besides the drawing: the axes' places, and the values of every series."""
    x_axis = {"start": _LEFT, "end": WIDTH - _RIGHT, "log": axes.get_xscale() == "log"}
    y_axis = {"start": HEIGHT - _BOTTOM, "end": _TOP, "log": axes.get_yscale() == "log"}
    for axis, limits in ((x_axis, axes.get_xlim()), (y_axis, axes.get_ylim())):
        axis["from"], axis["to"] = (_rounded(limit, 8) for limit in limits)
    series = list[dict[str, Any]]()
    for each in map(_finite, plot.series):
        if isinstance(each, Histogram):
            centers, shares = _counted(each, plot)
            series.append({"name": each.name, "x": centers, "y": shares})
        elif isinstance(each, Curve):
            band = {"low": each.low, "high": each.high} if each.low else {}
            series.append({"name": each.name, "x": each.x, "y": each.y, **band})
        else:
            series.append({"name": "", "x": each.x, "y": each.y, "loose": True})
    numbers = [{k: [_rounded(n) for n in v] if isinstance(v, list) else v for k, v in each.items()} for each in series]
    content = {"x": x_axis, "y": y_axis, "series": numbers, "xLabel": plot.x_label, "yLabel": plot.y_label}
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _rounded(value: float, digits: int = 5) -> float:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else 0.0


def _draw(axes: Any, plot: Plot, size: float) -> None:
    plot = replace(plot, y_log=plot.y_log or _spans_decades(plot))
    for number, series in enumerate(map(_finite, plot.series)):
        _draw_series(axes, series, number, plot)
    if plot.level:
        level = {"color": _FAINT, "linewidth": 1.5, "linestyle": (0, (4, 3)), "gid": f"s{len(plot.series)}"}
        axes.axhline(plot.level[1], label=plot.level[0], **level)
    if plot.diagonal:
        # A twentieth of room, so that the largest point is not on the frame.
        top = 1.05 * max((value for x, y in map(_points_of, plot.series) for value in (*x, *y)), default=0.0) or 1.0
        axes.plot([0, top], [0, top], color=_FAINT, linewidth=1)
        axes.set(xlim=(0, top), ylim=(0, top))
    _style(axes, plot, size)
    names = len(axes.get_legend_handles_labels()[1])
    if plot.title:
        axes.set_title(plot.title, color=_INK, fontsize=size + 2, pad=22 if names else 8)
    if names:  # above the axes, where it covers no curve
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "borderpad": 0}
        spacing = {"handlelength": 1.2, "columnspacing": 1, "handletextpad": 0.5}
        legend = axes.legend(frameon=False, fontsize=size, labelcolor=_FAINT, ncols=names, **spacing, **place)
        for handle, text, artist in zip(legend.legend_handles, legend.get_texts(), _named(axes), strict=True):
            handle.set_gid("n" + artist.get_gid()[1:])
            text.set_gid("n" + artist.get_gid()[1:])
    clipped = _clip(axes, plot, size)
    for artist in axes.findobj():  # unless there are outliers the limits hold all, and clip paths are a fifth of an SVG
        artist.set_clip_on(clipped and bool(artist.get_gid()) and artist.get_gid().startswith("s"))


def _short(name: str) -> str:
    """A name with its middle left out where a legend would leave the curves no room."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 2]}…{name[1 - LONGEST_NAME // 2 :]}"


def _drawable(plot: Plot) -> Plot:
    """The plot with names that can be drawn: those of runs may have any bytes."""
    series = [
        each if isinstance(each, Scatter) else replace(each, name=_short(drawable(each.name))) for each in plot.series
    ]
    level = (drawable(plot.level[0]), plot.level[1]) if plot.level else None
    x_label, y_label, title = map(drawable, (plot.x_label, plot.y_label, plot.title))
    return replace(plot, x_label=x_label, y_label=y_label, series=series, title=title, level=level)


def _named(axes: Any) -> list[Any]:
    """The artists in the legend, in its order; of a histogram its first bar."""
    handles = axes.get_legend_handles_labels()[0]
    return [handle[0] if hasattr(handle, "patches") else handle for handle in handles]


def _values(plot: Plot) -> list[float]:
    """All that the curves of a plot show, in order; none if it shows anything else."""
    if not all(isinstance(series, Curve) for series in plot.series):
        return []
    curves = [series for series in map(_finite, plot.series) if isinstance(series, Curve)]
    level = [plot.level[1]] if plot.level else []
    return sorted([value for curve in curves for value in (*curve.y, *curve.low, *curve.high)] + level)


def _spans_decades(plot: Plot) -> bool:
    values = _values(plot)
    return bool(values) and values[0] > 0 and values[-1] / values[0] >= DECADES


def _clip(axes: Any, plot: Plot, size: float) -> bool:
    """Leave outliers out of the y axis and say so on the plot. Returns whether there are any."""
    values = [] if plot.y_log else _values(plot)
    if len(values) < MARKED:
        return False
    # One in a hundred at either end.
    edge = max(len(values) // 100, 1)
    low, high = values[edge], values[-1 - edge]
    room = OUTLIER * (high - low) / 2
    out = [value for value in values if not low - room <= value <= high + room]
    if not out or high == low:
        return False
    inside = [value for value in values if low - room <= value <= high + room]
    margin = 0.05 * (inside[-1] - inside[0])
    axes.set_ylim(inside[0] - margin, inside[-1] + margin)
    text = f"clipped: {short(out[0])}" + (f" to {short(out[-1])}" if len(out) > 1 else "")
    place = {"transform": axes.transAxes, "ha": "right", "va": "bottom" if out[-1] < low else "top"}
    text = text.replace("-", "\N{MINUS SIGN}")
    axes.text(0.99, 0.02 if out[-1] < low else 0.98, text, color=_FAINT, fontsize=size - 1, **place)
    return True


def _draw_series(axes: Any, series: Curve | Scatter | Histogram, number: int, plot: Plot) -> None:
    colour, gid = _SERIES[number % len(_SERIES)], f"s{number}"
    match series:
        case Curve(name, x, y, low, high) if x:
            marker = "o" if len(x) < MARKED else ""
            width = 1.8 if marker else 1.2
            axes.plot(x, y, label=name, color=colour, marker=marker, markersize=4, linewidth=width, gid=gid)
            if len(x) == 1 and low:  # a band without a width is not seen
                axes.vlines(x, low, high, color=colour, alpha=0.4, linewidth=4, gid=gid)
            elif low:
                axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0, gid=gid)
        case Scatter(x, y, ordered) if x:
            last = max(len(x) - 1, 1)
            alpha = [0.25 + 0.75 * k / last for k in range(len(x))] if ordered else 0.8
            axes.scatter(x, y, s=26, color=colour, alpha=alpha, linewidth=0, gid=gid)
        case Histogram(name, values) if values:
            share = [1 / len(values)] * len(values)
            axes.hist(values, _edges(plot), weights=share, alpha=0.55, color=colour, label=name, gid=gid)


def _style(axes: Any, plot: Plot, size: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_xlabel(plot.x_label, color=_INK, fontsize=size)
    axes.set_ylabel(plot.y_label, color=_INK, fontsize=size)
    if plot.x_ticks:
        axes.set_xscale("log")
        axes.set_xticks(list(plot.x_ticks))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if plot.y_log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()  # between two powers of ten there may be a single one
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < DECADES else (1,), numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value).replace("-", "\N{MINUS SIGN}")))
    axes.tick_params(colors=_FAINT, labelsize=size, length=0)
    axes.grid(color=_LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)


def _edges(plot: Plot) -> list[float]:
    values = [value for series in plot.series if isinstance(series, Histogram) for value in series.values]
    # 1e-6, so that the largest value falls into the last bin.
    low, high = min(values), max(values) + 1e-6
    return [low + (high - low) * k / 15 for k in range(16)]


def _counted(histogram: Histogram, plot: Plot) -> tuple[list[float], list[float]]:
    """The middle of each bin, and the share of values in it."""
    edges, counts = _edges(plot), [0] * 15
    for value in histogram.values:
        counts[min(int((value - edges[0]) / (edges[-1] - edges[0]) * 15), 14)] += 1
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    return middles, [count / max(len(histogram.values), 1) for count in counts]


def _points_of(series: Curve | Scatter | Histogram) -> tuple[Sequence[float], Sequence[float]]:
    return (series.values, series.values) if isinstance(series, Histogram) else (series.x, series.y)


def _points(series: Curve | Scatter | Histogram) -> int:
    return len(_points_of(_finite(series))[1])


def _finite(series: Curve | Scatter | Histogram) -> Curve | Scatter | Histogram:
    """Without the points that are not numbers; of a long curve at most POINTS."""
    if not isinstance(series, Curve):
        return series
    keep = [k for k, value in enumerate(series.y) if math.isfinite(value)]
    keep = keep[:: max(-(-len(keep) // POINTS), 1)]
    columns = [[values[k] for k in keep] if values else [] for values in (series.x, series.y, series.low, series.high)]
    return Curve(series.name, *columns)
