"""What several training seeds say together, after Agarwal et al. (2021), "Deep reinforcement learning at the edge of
the statistical precipice": means with an interval over seeds, and the interquartile mean of several environments.

A seed counts once, by the mean over its test episodes. The interval of an environment's mean is Student's t over seeds:
a bootstrap over three is their range, which covers the mean of all seeds in 75 of 100 cases. For several environments
bootstrap samples draw seeds of each with replacement, as many as it has (stratified by environment).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.pages.score_rows import Row
from wm.seeding import generator
from wm.stats import Score

SAMPLES = 10_000  # of the bootstrap
LEAST_SEEDS = 3  # for an interval: of two, one difference would decide it

Values = NDArray[np.float64]


def interquartile_mean(values: Values) -> Values:
    """The mean of the middle half along the last axis: without a quarter of the values, rounded down, at each end."""
    # The interquartile mean of Agarwal et al. (2021): a quarter is cut off at either end.
    cut = values.shape[-1] // 4
    return np.sort(values, -1)[..., cut : values.shape[-1] - cut].mean(-1)


def interval(strata: Sequence[Values], statistic: Callable[[Values], Values]) -> tuple[float, float] | None:
    """The 95 % interval of a statistic of all values; None where a stratum has fewer than three."""
    if not strata or min(len(values) for values in strata) < LEAST_SEEDS:
        return None
    random = generator(0, "bootstrap over seeds")
    drawn = [values[random.integers(0, len(values), (SAMPLES, len(values)))] for values in strata]
    # The middle 95 % of the bootstrap.
    low, high = np.quantile(statistic(np.concatenate(drawn, -1)), (0.025, 0.975))
    return float(low), float(high)


def seeds_interval(values: Values) -> tuple[float, float] | None:
    """The 95 % interval of the mean over an environment's seeds; None with fewer than three."""
    if len(values) < LEAST_SEEDS:
        return None
    score = Score.of(values)
    return score.mean - score.ci95, score.mean + score.ci95


def seeds_of(rows: Sequence[Row]) -> Values:
    """The mean return of each training seed."""
    return np.array([row["mean"] for row in rows])


def worst(rows: Sequence[Row]) -> str:
    """The seed with the lowest return, and that return."""
    row = min(rows, key=lambda row: float(row["mean"]))
    return f"{row['mean']:.1f} (seed {row['training_seeds'][0]})"


def normalized(rows: Mapping[str, Sequence[Row]], bounds: Mapping[str, tuple[float, float]]) -> list[Values]:
    """Returns of each environment's seeds on a scale from 0, the random policy's, to 1, the target; both from
    `bounds`."""
    scaled = []
    for env, own in rows.items():
        low, high = bounds[env]
        scaled.append((seeds_of(own) - low) / (high - low))
    return scaled
