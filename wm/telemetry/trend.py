"""Does memory grow? A robust slope with an interval, and a verdict with its reason."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLOPE = 0.5e-3  # MB a step: clean runs show 0.0, the weakest leak on record 5.1e-3
DRIFT = 8.4  # MB over a phase (8 MiB): less is an allocator's breathing
FEWEST = 10  # readings from which a verdict is given
WARM = 0.2  # share of a training without a replay that counts as warming up
SCARCE = 200.0  # MB of memory that are left
MOST = 400  # readings that pairs are made of
Lines = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Trend:
    """Of a column over steps: MB a step (Theil-Sen) with its 95 % interval, MB over all, rank correlation."""

    slope: float
    low: float
    high: float
    drift: float
    correlation: float
    points: int

    @property
    def rises(self) -> bool:
        """Whether it is more than breathing: the interval is above the threshold's slope, and it adds up."""
        return self.low > SLOPE and self.slope > SLOPE and self.drift > DRIFT


def trend(steps: Sequence[float], values: Sequence[float]) -> Trend:
    """The median of the slopes of all pairs (Sen 1968), which a few outliers do not move; the interval is Sen's."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    if len(x) > MOST:
        chosen = np.linspace(0, len(x) - 1, MOST).round().astype(int)
        x, y = x[chosen], y[chosen]
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] - x[first]
    slopes = np.sort((y[second] - y[first])[apart > 0] / apart[apart > 0])
    if not len(slopes):
        return Trend(0.0, -math.inf, math.inf, 0.0, 0.0, len(x))
    spread = 1.96 * math.sqrt(len(x) * (len(x) - 1) * (2 * len(x) + 5) / 18)
    low, high = (int((len(slopes) + sign * spread) / 2) for sign in (-1, 1))
    slope = float(np.median(slopes))
    return Trend(
        slope,
        float(slopes[max(low, 0)]),
        float(slopes[min(high, len(slopes) - 1)]),
        slope * float(x[-1] - x[0]),
        _rank_correlation(x, y),
        len(x),
    )


def _rank_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (x, y)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


@dataclass(frozen=True)
class Verdict:
    """`word` is flat, filling a buffer, leaking, fragmenting, at capacity or too short to tell."""

    word: str
    reason: str


def settled(lines: Lines) -> Lines:
    """The readings after malloc gave back what was free, where there are enough of them; else all."""
    trimmed = [line for line in lines if line.get("trimmed")]
    return trimmed if len(trimmed) >= 2 * FEWEST else lines


def phases(lines: Lines) -> dict[str, Lines]:
    """The readings by phase: with a replay until it is full and after, else the first fifth and the rest. A training
    that was continued is judged by its last process: another one begins with other memory."""
    lines = [line for line in lines if "rss_anon_mb" in line]
    if not lines:
        return {}
    last = lines[-1].get("process")
    lines = settled([line for line in lines if line.get("process") == last])
    if "replay" in lines[-1]:
        told = [line for line in lines if "replay" in line]
        full = told[-1]["replay"]
        filling = [line for line in told if line["replay"] < full]
        rest = [line for line in told if line["replay"] >= full]
        return {"filling": filling, "full": rest} if len(rest) > 1 else {"filling": told}
    cut = int(len(lines) * WARM)
    return {"warming up": lines[:cut], "training": lines[cut:]}


def column(lines: Lines, name: str) -> Trend | None:
    """The trend of a column over the lines that have it; None for fewer than two."""
    told = [line for line in lines if name in line]
    if len(told) < 2:
        return None
    return trend([line["step"] for line in told], [line[name] for line in told])


def judge(lines: Lines) -> Verdict:
    """The verdict on the last phase of a training, from its lines of metrics."""
    found = phases(lines)
    name, last = next(reversed(found.items()), ("", []))
    if len(last) < FEWEST:
        return Verdict("too short to tell", f"{len(last)} readings in the last phase; {FEWEST} are needed.")
    anonymous, buffers, unexplained = (column(last, key) for key in ("rss_anon_mb", "buffers_mb", "unexplained_mb"))
    assert anonymous is not None
    watched = unexplained or anonymous
    told = f"{_slope(watched)} unexplained while {name}"
    if "cuda_blocks_small" in last[-1] and (verdict := _judge_device(last)):
        return verdict
    if watched.rises:
        return Verdict("leaking", f"{told}, {watched.drift:.1f} MB in all, and no buffer accounts for it.")
    if last[-1].get("memory_free_mb", math.inf) < SCARCE:
        return Verdict("at capacity", f"{last[-1]['memory_free_mb']:.0f} MB of memory are left; {told}.")
    if anonymous.drift > DRIFT and buffers is not None and buffers.drift > 0.8 * anonymous.drift:
        return Verdict("filling a buffer", f"{_slope(anonymous)}, as much as buffers grow; {told}.")
    return Verdict("flat", f"{told}, {watched.drift:.1f} MB in all; under {1000 * SLOPE:g} kB a step or {DRIFT:g} MB.")


def _judge_device(lines: Lines) -> Verdict | None:
    blocks, allocated, reserved = (
        column(lines, f"cuda_{name}") for name in ("blocks_small", "allocated_mb", "reserved_mb")
    )
    assert blocks is not None
    assert allocated is not None
    assert reserved is not None
    if blocks.low > 0.001 and allocated.slope > 0:
        return Verdict("leaking", f"{blocks.slope:.3g} blocks a step stay in the device's small pool.")
    if allocated.rises:
        return Verdict("leaking", f"{_slope(allocated)} stay allocated on the device.")
    if lines[-1]["cuda_retries"] > lines[0]["cuda_retries"]:
        return Verdict("at capacity", "the device's allocator had to free its cache to go on.")
    if reserved.drift > 64 and reserved.rises:
        return Verdict("fragmenting", f"{_slope(reserved)} are reserved on the device while what is in use is flat.")
    return None


def _slope(found: Trend) -> str:
    return f"{1000 * found.slope:+.3f} kB a step ({1000 * found.low:+.3f} to {1000 * found.high:+.3f})"
