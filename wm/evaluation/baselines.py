"""Baselines of M's predictions, and measures of predicted rewards and episode ends.

The linear baseline is an autoregression on the last *two* latents and the action, which makes velocities known at no
cost. Shapes: N steps, Z latents, A encoded action width. `previous`, `current` and `following` are latents of
consecutive rows.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.stats import MIN_EVENTS, ridge_regression

# Of latents that never move: without it their likelihood would be infinite.
MIN_STD = 1e-3
EDGES = (0.0, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # of the probability bins of a calibration

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Baselines:
    """Predictions of the next latent without a learned model, fitted on (N, Z) training rows: the mean, persistence,
    and a linear autoregression. Their NLLs take each dimension's residuals for Gaussian."""

    mean: Array
    mean_std: Array
    persistence_std: Array
    weights: Array
    linear_std: Array

    @classmethod
    def fit(cls, previous: Array, current: Array, actions: Array, following: Array) -> "Baselines":
        """Fit all three."""
        inputs = _inputs(previous, current, actions)
        weights = ridge_regression(inputs, following - current)
        mean = following.mean(axis=0)
        residuals = (following - mean, following - current, following - current - inputs @ weights)
        deviations = (np.sqrt(np.square(residual).mean(axis=0)) for residual in residuals)
        mean_std, persistence_std, linear_std = (np.maximum(std, MIN_STD) for std in deviations)
        return cls(mean, mean_std, persistence_std, weights, linear_std)

    def predict_linear(self, previous: Array, current: Array, actions: Array) -> Array:
        """The autoregression's next latents."""
        prediction: Array = current + _inputs(previous, current, actions) @ self.weights
        return prediction

    def nll(self, previous: Array, current: Array, actions: Array, following: Array) -> dict[str, float]:
        """Negative log-likelihood of the next latents by baseline, in nats per dimension."""
        errors = {
            "persistence": (following - current, self.persistence_std),
            "mean": (following - self.mean, self.mean_std),
            "linear": (following - self.predict_linear(previous, current, actions), self.linear_std),
        }
        return {name: _gaussian_nll(error, std) for name, (error, std) in errors.items()}


# float64, for the ridge regression inverts a matrix of these.
def _inputs(previous: Array, current: Array, actions: Array) -> Array:
    columns = (current, current - previous, actions, np.ones((len(current), 1)))
    return np.concatenate(columns, axis=1).astype(np.float64)


def _gaussian_nll(error: Array, std: Array) -> float:
    return float((0.5 * np.square(error / std) + np.log(std)).mean() + 0.5 * math.log(2 * math.pi))


def common_reward(rewards: Array) -> float | None:
    """The reward of most steps, from which rare ones differ; None where no value has at least half the steps."""
    # Rounded: a reward that an environment computes differs in its last digits.
    values, counts = np.unique(np.round(rewards, 4), return_counts=True)
    top = int(np.argmax(counts))
    return float(values[top]) if counts[top] * 2 >= len(rewards) else None


def reward_recall(
    predicted: Array, rewards: Array, episodes: NDArray[np.int64], common: float, precision: float
) -> float | None:
    """Share of the rare rewards that are predicted within one step and with their sign; None with fewer than ten.

    The threshold is the one that recalls most of them at this `precision`. predicted, rewards (N,); `episodes` (N,)
    separates neighbours of different episodes.
    """
    signal = predicted - common
    # A thousandth is ten times the rounding of `common_reward`.
    events = np.sign(np.where(np.abs(rewards - common) > 1e-3, rewards - common, 0))
    if (events != 0).sum() < MIN_EVENTS:
        return None
    correct = np.zeros(len(predicted), bool)
    best = np.full(len(predicted), -np.inf)
    for shift in (-1, 0, 1):
        other = np.clip(np.arange(len(predicted)) + shift, 0, len(predicted) - 1)
        same = episodes[other] == episodes
        correct |= same & (events[other] != 0) & (events[other] == np.sign(signal))
        best = np.maximum(best, np.where(same, events * signal[other], -np.inf))
    # Stable, so that equal signals keep their order on every machine.
    order = np.argsort(-np.abs(signal), kind="stable")
    strength = np.abs(signal[order])
    complete = (np.diff(strength, append=-1.0) < 0) & (strength > 0)  # a threshold includes all equal strengths
    enough = np.flatnonzero(complete & (np.cumsum(correct[order]) >= precision * np.arange(1, len(predicted) + 1)))
    return float((best[events != 0] >= strength[enough[-1]]).mean()) if len(enough) else 0.0


def brier_score(probability: Array, outcome: Array) -> float:
    """Mean squared difference of a probability and its outcome (0 or 1)."""
    return float(np.square(probability - outcome).mean())


def calibration(probability: Array, outcome: Array) -> list[dict[str, float]]:
    """Per non-empty bin of the probability: steps, mean probability, and observed frequency."""
    place = np.clip(np.digitize(probability, EDGES) - 1, 0, len(EDGES) - 2)
    bins = [place == number for number in range(len(EDGES) - 1)]
    return [
        {
            "steps": int(rows.sum()),
            "predicted": float(probability[rows].mean()),
            "observed": float(outcome[rows].mean()),
        }
        for rows in bins
        if rows.any()
    ]
