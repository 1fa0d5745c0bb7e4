"""Charts as SVG inside a page: they take its colours, light or dark, and stay sharp at any width."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from wm.report.plots import Curve

WIDE, TALL = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 22, 30, 38
POINTS = 400  # of a curve, at most
MARKED = 30  # a curve with fewer points shows them


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float  # in the picture
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Where a value is in the picture."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = (math.log(max(number, 1e-12)) for number in (low, high, value))
        return self.start + (value - low) / ((high - low) or 1.0) * (self.end - self.start)


def lines(
    curves: Sequence[Curve],
    x_label: str,
    y_label: str,
    *,
    level: tuple[str, float] | None = None,
    ticks_at: bool = False,
) -> str:
    """Curves on one pair of axes, `level` as a dashed line across. With `ticks_at` the first curve's x are the ticks,
    on a logarithmic axis."""
    curves = [_whole(curve) for curve in curves]
    curves = [_thinned(curve) for curve in curves if curve.x]
    if not curves:
        return ""
    xs = [value for curve in curves for value in curve.x]
    ys = [value for curve in curves for value in (*curve.y, *curve.low, *curve.high)] + ([level[1]] if level else [])
    x = _Axis(min(xs), max(xs), LEFT, WIDE - RIGHT, ticks_at)
    y = _vertical(ys)
    x_ticks = list(curves[0].x) if ticks_at else ticks(x.low, x.high, 6)
    drawn = [_frame(x, y, x_ticks, x_label, y_label)]
    for number, curve in enumerate(curves):
        points = [f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in zip(curve.x, curve.y, strict=True)]
        if curve.low:
            edge = [f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in zip(curve.x, curve.high, strict=True)]
            edge += [f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in reversed(list(zip(curve.x, curve.low, strict=True)))]
            drawn.append(f'<polygon class="band k{number}" points="{" ".join(edge)}"/>')
        noisy = " noisy" if len(points) >= MARKED else ""
        drawn.append(f'<polyline class="k{number}{noisy}" points="{" ".join(points)}"/>')
        if not noisy:
            dots = (point.split(",") for point in points)
            drawn.append(f'<g class="dot k{number}">' + "".join(_dot(a, b) for a, b in dots) + "</g>")
    names = [curve.name for curve in curves]
    if level:
        at = y.at(level[1])
        drawn.append(f'<line class="level" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        names.append(level[0])
    told = "; ".join(f"{curve.name} from {short(curve.y[0])} to {short(curve.y[-1])}" for curve in curves)
    if level:
        told += f"; {level[0]} {short(level[1])}"
    return _svg([*drawn, _legend(names, dashed_last=level is not None)], f"{y_label} over {x_label}: {told}")


def scatter(x_values: Sequence[float], y_values: Sequence[float], x_label: str, y_label: str, told: str) -> str:
    """Points; later ones are stronger. `told` says in words what they show."""
    if not x_values:
        return ""
    x, y = _Axis(*_widened(x_values), LEFT, WIDE - RIGHT), _vertical(y_values)
    strength = [0.25 + 0.75 * number / max(len(x_values) - 1, 1) for number in range(len(x_values))]
    dots = "".join(
        _dot(f"{x.at(a):.1f}", f"{y.at(b):.1f}", f' r="4" fill-opacity="{s:.2f}"')
        for a, b, s in zip(x_values, y_values, strength, strict=True)
    )
    frame = _frame(x, y, ticks(x.low, x.high, 6), x_label, y_label)
    return _svg([frame, f'<g class="dot k0">{dots}</g>'], f"{y_label} against {x_label}: {told}")


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two others."""
    span = (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number for a label: 1,200, 3.5, 0.012."""
    if value and abs(value) < 1e-3:
        return f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _whole(curve: Curve) -> Curve:
    """Without the points that are not numbers."""
    keep = [k for k, value in enumerate(curve.y) if math.isfinite(value)]
    pick = [[values[k] for k in keep] if values else [] for values in (curve.x, curve.y, curve.low, curve.high)]
    return Curve(curve.name, *pick)


def _thinned(curve: Curve) -> Curve:
    every = -(-len(curve.x) // POINTS)
    parts = (curve.x, curve.y, curve.low, curve.high)
    return curve if every == 1 else Curve(curve.name, *(list(values[::every]) for values in parts))


def _widened(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 0.5
    return low - margin, high + margin


def _vertical(values: Sequence[float]) -> _Axis:
    return _Axis(*_widened(values), TALL - BOTTOM, TOP)


def _dot(x: str, y: str, more: str = ' r="2.5"') -> str:
    return f'<circle cx="{x}" cy="{y}"{more}/>'


def _frame(x: _Axis, y: _Axis, x_ticks: Sequence[float], x_label: str, y_label: str) -> str:
    found = [f'<g class="axis"><line x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{TALL - BOTTOM}" y2="{TALL - BOTTOM}"/>']
    for tick in ticks(y.low, y.high, 5):
        at = y.at(tick)
        found.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        found.append(f'<text class="end" x="{LEFT - 6}" y="{at + 4:.1f}">{short(tick)}</text>')
    for tick in x_ticks:
        found.append(f'<text class="middle" x="{x.at(tick):.1f}" y="{TALL - BOTTOM + 15}">{short(tick)}</text>')
    middle = (LEFT + WIDE - RIGHT) / 2
    found.append(f'<text class="middle name" x="{middle:.0f}" y="{TALL - 5}">{html.escape(x_label)}</text>')
    height = (TOP + TALL - BOTTOM) / 2
    turn = f'transform="rotate(-90 11 {height:.0f})"'
    found.append(f'<text class="middle name" x="11" y="{height:.0f}" {turn}>{html.escape(y_label)}</text></g>')
    return "".join(found)


def _legend(names: Sequence[str], dashed_last: bool) -> str:
    found, left = [], 4.0
    for number, name in enumerate(names):
        kind = "level" if dashed_last and number == len(names) - 1 else f"k{number}"
        found.append(f'<line class="{kind} key" x1="{left:.0f}" x2="{left + 16:.0f}" y1="13" y2="13"/>')
        found.append(f'<text x="{left + 21:.0f}" y="17">{html.escape(name)}</text>')
        left += 32 + 5.6 * len(name)
    return "".join(found)


def _svg(parts: Sequence[str], told: str) -> str:
    label = html.escape(told, quote=True)
    return f'<svg class="chart" viewBox="0 0 {WIDE} {TALL}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
