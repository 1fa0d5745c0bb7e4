"""Does memory grow? A robust slope with its interval, and an assessment with its reason."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wm.stats import rank_correlation

MIN_SLOPE = 0.5e-3  # MB a step: clean runs show 0.0, the weakest leak on record 5.1e-3
MIN_DRIFT = 8.4  # MB over a phase (8 MiB): an allocator's free memory varies by less
MIN_READINGS = 10  # below which nothing can be told
MIN_INTERVAL = 5  # readings below which a slope has no interval: of four, even all slopes together cover only 92 %
WARM_UP = 0.2  # share of a training without a replay that is not judged
MIN_FREE = 200.0  # MB of memory, below which a training is at capacity
BUFFER_SHARE = 0.8  # of the growth, above which nearly all is that of a known buffer
MIN_BLOCK_SLOPE = 0.001  # blocks a step of the device's small pool: one in a thousand steps
MIN_RESERVED = 64  # MB: PyTorch's allocator reserves blocks of up to 20, so that a few more are no fragmentation
MAX_READINGS = 400  # whose pairs give the slope
Lines = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Trend:
    """Of a column over steps: MB a step (Theil-Sen) with its 95 % interval, None for fewer than five readings; MB over
    all, rank correlation."""

    slope: float
    low: float | None
    high: float | None
    drift: float
    correlation: float
    points: int

    @property
    def rises(self) -> bool:
        """Whether it is significant: the interval is above the least slope, and the drift above the least drift."""
        return self.is_above(MIN_SLOPE) and self.drift > MIN_DRIFT

    def is_above(self, slope: float) -> bool:
        """Whether the interval is above a slope."""
        return self.low is not None and self.low > slope

    def __str__(self) -> str:
        """The slope with its interval."""
        return f"{format_slope(self.slope)} kB a step ({format_interval(self.low, self.high)})"


def format_slope(slope: float) -> str:
    """MB a step in kB, without decimals where they would be noise."""
    value = 1000 * slope
    # Two digits are what an interval of such a slope supports.
    return f"{value:+.0f}" if abs(value) >= 10 else f"{value:+.1f}"


def format_interval(low: float | None, high: float | None) -> str:
    """The interval of a slope, or that there is none."""
    return "no interval" if low is None or high is None else f"{format_slope(low)} to {format_slope(high)}"


def estimate_trend(steps: Sequence[float], values: Sequence[float]) -> Trend:
    """The median of the slopes of all pairs (Sen 1968), which a few outliers do not move; the interval is Sen's."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    if len(x) > MAX_READINGS:
        subset = np.linspace(0, len(x) - 1, MAX_READINGS).round().astype(int)
        x, y = x[subset], y[subset]
    first, second = np.triu_indices(len(x), 1)
    distance = x[second] - x[first]
    slopes = np.sort((y[second] - y[first])[distance > 0] / distance[distance > 0])
    if not len(slopes):
        return Trend(0.0, None, None, 0.0, 0.0, len(x))
    # The variance of Kendall's statistic without ties (Sen 1968), and 1.96 for 95 %.
    spread = 1.96 * math.sqrt(len(x) * (len(x) - 1) * (2 * len(x) + 5) / 18)
    low, high = (int((len(slopes) + sign * spread) / 2) for sign in (-1, 1))
    slope = float(np.median(slopes))
    known = len(x) >= MIN_INTERVAL
    return Trend(
        slope,
        float(slopes[max(low, 0)]) if known else None,
        float(slopes[min(high, len(slopes) - 1)]) if known else None,
        slope * float(x[-1] - x[0]),
        rank_correlation(x, y) or 0.0,
        len(x),
    )


@dataclass(frozen=True)
class Assessment:
    """`word` is flat, filling a buffer, leaking, fragmenting, at capacity or too short to tell."""

    word: str
    reason: str


def after_trim(lines: Lines) -> Lines:
    """The readings after malloc returned its free memory, if there are enough of them; else all."""
    trimmed = [line for line in lines if line.get("trimmed")]
    return trimmed if len(trimmed) >= 2 * MIN_READINGS else lines


def phases(lines: Lines) -> dict[str, Lines]:
    """The readings by phase: with a replay until it is full and after, else the first fifth and the rest. A resumed
    training is judged by its last process: another one begins with other memory."""
    lines = [line for line in lines if "rss_anon_mb" in line]
    if not lines:
        return {}
    last = lines[-1].get("process")
    lines = after_trim([line for line in lines if line.get("process") == last])
    if "replay" in lines[-1]:
        lines = [line for line in lines if "replay" in line]
        capacity = lines[-1]["replay"]
        filling = [line for line in lines if line["replay"] < capacity]
        full = [line for line in lines if line["replay"] >= capacity]
        return {"filling": filling, "full": full} if len(full) > 1 else {"filling": lines}
    warm_up = int(len(lines) * WARM_UP)
    return {"warming up": lines[:warm_up], "training": lines[warm_up:]}


def column_trend(lines: Lines, name: str) -> Trend | None:
    """The trend of a column over the lines that have it; None for fewer than two."""
    lines = [line for line in lines if name in line]
    if len(lines) < 2:
        return None
    return estimate_trend([line["step"] for line in lines], [line[name] for line in lines])


def judge(lines: Lines) -> Assessment:
    """Assess the last phase of a training, from its lines of metrics."""
    name, last = next(reversed(phases(lines).items()), ("", []))
    if len(last) < MIN_READINGS:
        return Assessment("too short to tell", f"the last phase has {len(last)} of {MIN_READINGS} readings needed.")
    anonymous, buffers, unexplained = (
        column_trend(last, key) for key in ("rss_anon_mb", "buffers_mb", "unexplained_mb")
    )
    assert anonymous is not None
    trend = unexplained or anonymous
    summary = f"{trend} unexplained while {name}"
    if "cuda_blocks_small" in last[-1] and (assessment := _judge_device(last)):
        return assessment
    if trend.rises:
        return Assessment("leaking", f"{summary}, {trend.drift:.1f} MB in all, and no buffer explains it.")
    if last[-1].get("memory_free_mb", math.inf) < MIN_FREE:
        return Assessment("at capacity", f"{last[-1]['memory_free_mb']:.0f} MB of memory are free; {summary}.")
    if anonymous.drift > MIN_DRIFT and buffers is not None and buffers.drift > BUFFER_SHARE * anonymous.drift:
        return Assessment("filling a buffer", f"{anonymous}, as much as buffers grow; {summary}.")
    if trend.drift > MIN_DRIFT:
        return Assessment("flat", f"{summary}; the interval reaches below {1000 * MIN_SLOPE:g} kB a step.")
    return Assessment("flat", f"{summary}, {trend.drift:.1f} MB in all; a rise is more than {MIN_DRIFT:g} MB.")


def _judge_device(lines: Lines) -> Assessment | None:
    blocks, allocated, reserved = (
        column_trend(lines, f"cuda_{name}") for name in ("blocks_small", "allocated_mb", "reserved_mb")
    )
    assert blocks is not None
    assert allocated is not None
    assert reserved is not None
    if blocks.is_above(MIN_BLOCK_SLOPE) and allocated.slope > 0:
        return Assessment("leaking", f"{blocks.slope:.3g} blocks a step stay in the device's small pool.")
    if allocated.rises:
        return Assessment("leaking", f"{allocated} stay allocated on the device.")
    if lines[-1]["cuda_retries"] > lines[0]["cuda_retries"]:
        return Assessment("at capacity", "the device's allocator had to free its cache.")
    if reserved.drift > MIN_RESERVED and reserved.rises:
        return Assessment("fragmenting", f"{reserved} are reserved on the device while the memory in use is flat.")
    return None
