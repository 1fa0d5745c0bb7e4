"""Scores with intervals. A mean without one is not a result."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t by the expansion in 1 / freedom (Abramowitz & Stegun 26.7.5); 1e-3 from 5 degrees on."""
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
        return f"{self.mean:.1f} ± {self.ci95:.1f}"
