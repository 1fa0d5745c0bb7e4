"""What M is compared with, and by what measures: guesses that cost nothing, and scores of rewards and ends.

Shapes: N steps, Z latents, A encoded action width. `before`, `now` and `after` are latents of consecutive rows.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RIDGE = 1e-3
FEWEST = 10  # events below which nothing is said of them
LEAST_STD = 1e-3
BOOTSTRAPS = 2000
EDGES = (0.0, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # of the bins in which ends are compared with their probability

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Baselines:
    """What guesses the next latent without learning a model, fitted on (N, Z) training rows; NLLs are in nats per
    dimension and take each dimension's residuals for Gaussian."""

    mean: Array
    std: Array
    drift_std: Array
    weights: Array
    residual_std: Array

    @classmethod
    def fit(cls, before: Array, now: Array, actions: Array, after: Array) -> "Baselines":
        """Marginal, persistence, and a linear autoregression on the last two latents and the action."""
        inputs = _inputs(before, now, actions)
        gram = inputs.T @ inputs + RIDGE * len(inputs) * np.eye(inputs.shape[1])
        weights = np.linalg.solve(gram, inputs.T @ (after - now))
        residual = after - now - inputs @ weights
        mean = after.mean(axis=0)
        stds = (np.sqrt(np.square(part).mean(axis=0)) for part in (after - mean, after - now, residual))
        std, drift, rest = (np.maximum(part, LEAST_STD) for part in stds)
        return cls(mean, std, drift, weights, rest)

    def linear(self, before: Array, now: Array, actions: Array) -> Array:
        """The autoregression's next latents."""
        guess: Array = now + _inputs(before, now, actions) @ self.weights
        return guess

    def nll(self, before: Array, now: Array, actions: Array, after: Array) -> dict[str, float]:
        """Negative log-likelihood of the next latents by guess."""
        errors = {
            "persistence": (after - now, self.drift_std),
            "marginal": (after - self.mean, self.std),
            "linear": (after - self.linear(before, now, actions), self.residual_std),
        }
        return {name: _gaussian_nll(error, std) for name, (error, std) in errors.items()}


def _inputs(before: Array, now: Array, actions: Array) -> Array:
    columns = (now, now - before, actions, np.ones((len(now), 1)))
    return np.concatenate(columns, axis=1).astype(np.float64)


def _gaussian_nll(error: Array, std: Array) -> float:
    return float((0.5 * np.square(error / std) + np.log(std)).mean() + 0.5 * math.log(2 * math.pi))


def rank_correlation(one: Array, two: Array) -> float | None:
    """Spearman's rho, ties sharing their mean rank; None where one side does not vary."""
    ranks = [_ranks(part) for part in (one, two)]
    if min(part.std() for part in ranks) == 0:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def rank_interval(one: Array, two: Array, random: np.random.Generator) -> tuple[float, float] | None:
    """95 % interval of Spearman's rho by the bootstrap over pairs; None with fewer than ten, or where one side does not
    vary."""
    if len(one) < FEWEST:
        return None
    found = []
    for _ in range(BOOTSTRAPS):
        rows = random.integers(0, len(one), len(one))
        if (rho := rank_correlation(one[rows], two[rows])) is not None:
            found.append(rho)
    if len(found) < BOOTSTRAPS // 2:
        return None
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def _ranks(values: Array) -> Array:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Array = (last - (counts - 1) / 2)[inverse]
    return ranks


def usual(rewards: Array) -> float | None:
    """The reward of most steps, from which rare ones stand out; None where no value has at least half the steps."""
    values, counts = np.unique(np.round(rewards, 4), return_counts=True)
    top = int(np.argmax(counts))
    return float(values[top]) if counts[top] * 2 >= len(rewards) else None


def recall(said: Array, rewards: Array, episodes: NDArray[np.int64], normal: float, precision: float) -> float | None:
    """Share of the unusual rewards that are foretold within one step and with their sign, at the threshold that finds
    most of them while `precision` of what it calls is right; None with fewer than ten of them.

    said, rewards (N,) are predicted and real; `episodes` (N,) keeps neighbours of different episodes apart.
    """
    signal, events = said - normal, np.sign(np.where(np.abs(rewards - normal) > 1e-3, rewards - normal, 0))
    if (events != 0).sum() < FEWEST:
        return None
    right = np.zeros(len(said), bool)
    best = np.full(len(said), -np.inf)
    for shift in (-1, 0, 1):
        other = np.clip(np.arange(len(said)) + shift, 0, len(said) - 1)
        same = episodes[other] == episodes
        right |= same & (events[other] != 0) & (events[other] == np.sign(signal))
        best = np.maximum(best, np.where(same, events * signal[other], -np.inf))
    order = np.argsort(-np.abs(signal), kind="stable")
    strength = np.abs(signal[order])
    whole = (np.diff(strength, append=-1.0) < 0) & (strength > 0)  # a threshold calls all that are as strong
    enough = np.flatnonzero(whole & (np.cumsum(right[order]) >= precision * np.arange(1, len(said) + 1)))
    return float((best[events != 0] >= strength[enough[-1]]).mean()) if len(enough) else 0.0


def brier(probability: Array, happened: Array) -> float:
    """Mean squared difference of a probability and what happened (0 or 1)."""
    return float(np.square(probability - happened).mean())


def calibration(probability: Array, happened: Array) -> list[dict[str, float]]:
    """Per bin of the probability that is not empty: steps, mean probability, and how often it happened."""
    place = np.clip(np.digitize(probability, EDGES) - 1, 0, len(EDGES) - 2)
    chosen = [place == number for number in range(len(EDGES) - 1)]
    return [
        {"steps": int(mask.sum()), "said": float(probability[mask].mean()), "happened": float(happened[mask].mean())}
        for mask in chosen
        if mask.any()
    ]
