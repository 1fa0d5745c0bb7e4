"""Scores with intervals, rank correlation and ridge regression. A mean without an interval is not a result."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

RIDGE = 1e-3  # penalty per row of a ridge regression
MIN_PAIRS = 10  # below which a correlation has no interval
MIN_GROUPS = 3  # below which a mean over groups has no interval: of two, one difference would decide it
MIN_EVENTS = 10  # below which there is no measure of them
MOST_DECIMALS = 4  # of an interval: equal returns have one of 1e-16, which is rounding
LEAST_SHOWN = 1e-12  # of a mean or an interval: less is rounding
# Enough for two digits of a 95 % interval.
BOOTSTRAPS = 2000
LARGEST_REWARD = 1e15  # in size, of labels too: their squares, and sums over 1e8 of them, are finite in 32 bits

Array = NDArray[np.floating[Any]]


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t: exact for one and two degrees of freedom, else by the expansion in 1 / freedom
    (Abramowitz & Stegun 26.7.5), whose error is 4e-3 for three and below 1e-3 from four on."""
    side = 2 * probability - 1
    if freedom == 1:
        return math.tan(math.pi * side / 2)
    if freedom == 2:
        return side * math.sqrt(2 / (1 - side**2))
    x = NormalDist().inv_cdf(probability)
    terms = (
        x,
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


@dataclass(frozen=True)
class Score:
    """Mean return with the half-width of its 95 % interval (Student's t over episodes)."""

    mean: float
    ci95: float
    episodes: int

    @classmethod
    def of(cls, returns: NDArray[np.float64]) -> "Score":
        """The score of at least two returns."""
        count = len(returns)
        spread = float(np.std(returns, ddof=1)) / math.sqrt(count)
        return cls(float(np.mean(returns)), student_quantile(0.975, count - 1) * spread, count)

    def __str__(self) -> str:
        return with_interval(self.mean, self.ci95)


def with_interval(mean: float, half: float, sign: str = "", least: int = 1) -> str:
    """A mean and the half-width of its interval, with as many decimals as show the latter, from `least` to
    MOST_DECIMALS: 21.5 ± 0.8, 0.98 ± 0.03; 2.6e-06 ± 1e-07 where these would show zeros alone. `sign` is "+" where
    differences from zero are meant."""
    if LEAST_SHOWN < max(abs(mean), half) < 0.5 * 0.1**MOST_DECIMALS:
        return f"{mean:{sign}.2g} ± {half:.1g}"
    decimals = max(min(math.ceil(-math.log10(half)), MOST_DECIMALS), least) if half > 0 else least
    return f"{mean:{sign}.{decimals}f} ± {half:.{decimals}f}"


def grouped_half_width(values: Array, groups: NDArray[np.int64]) -> float | None:
    """Half-width of the 95 % interval of the mean of values (N,), of which those of a group (N,) depend on each other,
    as the steps of an episode do: by the variance between groups. None with fewer than three groups."""
    names, places = np.unique(groups, return_inverse=True)
    count = len(names)
    if count < MIN_GROUPS:
        return None
    sums = np.bincount(places, weights=values - values.mean())
    variance = count / (count - 1) * float(np.square(sums).sum()) / len(values) ** 2
    return student_quantile(0.975, count - 1) * math.sqrt(variance)


def rank_correlation(one: Array, two: Array) -> float | None:
    """Spearman's rho, ties sharing their mean rank; None where one side does not vary."""
    ranks = [_ranks(values) for values in (one, two)]
    if min(values.std() for values in ranks) == 0:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def rank_correlation_interval(one: Array, two: Array, random: np.random.Generator) -> tuple[float, float] | None:
    """95 % interval of Spearman's rho by the bootstrap over pairs; None with fewer than ten pairs, or where one side
    does not vary."""
    if len(one) < MIN_PAIRS:
        return None
    samples = []
    for _ in range(BOOTSTRAPS):
        rows = random.integers(0, len(one), len(one))
        if (rho := rank_correlation(one[rows], two[rows])) is not None:
            samples.append(rho)
    if len(samples) < BOOTSTRAPS // 2:
        return None
    # The middle 95 % of the bootstrap.
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)


def _ranks(values: Array) -> Array:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Array = (last - (counts - 1) / 2)[inverse]
    return ranks


def ridge_regression(inputs: Array, targets: Array, penalty: Array | None = None) -> Array:
    """Weights (F, O) for which inputs (N, F) @ weights are nearest to targets (N, O), or (F,) for (N,). `penalty` (F,)
    scales the shrinkage of each input; None: all alike."""
    scale = np.ones(inputs.shape[1]) if penalty is None else penalty
    gram = inputs.T @ inputs + RIDGE * len(inputs) * np.diag(scale)
    weights: Array = np.linalg.solve(gram, inputs.T @ targets)
    return weights
