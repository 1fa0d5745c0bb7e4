"""Distributions over actions for a policy gradient, from the outputs of an actor.

A choice is what is drawn: the number of an action, or a point in the unit cube. Shapes: B rows, K actions, D axes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

# One generator for all rows, or one a row: what a row draws then depends on no other.
Randoms = np.random.Generator | Sequence[np.random.Generator]
EDGE = 1e-4  # that a point keeps from the faces of the unit cube, where densities can be infinite


@dataclass(frozen=True)
class Categorical:
    """One of K actions; the outputs (B, K) are logits, a choice (B,) int64."""

    count: int

    @property
    def outputs(self) -> int:
        """Outputs of the actor."""
        return self.count

    def likeliest(self, outputs: Tensor) -> Tensor:
        """The most probable action."""
        return outputs.argmax(1)

    def draw(self, outputs: Tensor, randoms: Randoms) -> Tensor:
        """A sample, by inverting the cumulative probabilities."""
        # In double precision, because rounding of float32 sums would favour the last action.
        cumulative = torch.softmax(outputs.double(), 1).cumsum(1)[:, :-1]
        if isinstance(randoms, np.random.Generator):
            uniform = randoms.random(len(outputs))
        else:
            uniform = np.array([each.random() for each in randoms])
        return (cumulative <= torch.from_numpy(uniform)[:, None]).sum(1)

    # log_softmax, not the log of a softmax, which is minus infinity for an action of small probability.
    def log_prob(self, outputs: Tensor, choices: Tensor) -> Tensor:
        """(B,)"""
        return torch.log_softmax(outputs, 1).gather(1, choices[:, None])[:, 0]

    def entropy(self, outputs: Tensor) -> Tensor:
        """(B,), in nats."""
        logs = torch.log_softmax(outputs, 1)
        return -(logs.exp() * logs).sum(1)


@dataclass(frozen=True)
class Beta:
    """A point in the unit cube, each axis with a Beta distribution of one peak; the outputs (B, 2 D) give its two
    parameters, both above 1. A choice is (B, D) float32."""

    axes: int

    @property
    def outputs(self) -> int:
        """Outputs of the actor."""
        return 2 * self.axes

    def likeliest(self, outputs: Tensor) -> Tensor:
        """The mean, which is near the peak and never on a face."""
        alpha, beta = _parameters(outputs)
        return alpha / (alpha + beta)

    def draw(self, outputs: Tensor, randoms: Randoms) -> Tensor:
        """A sample."""
        # numpy draws from the generators that are seeded an episode; torch's Beta takes none.
        alpha, beta = (part.double().numpy() for part in _parameters(outputs))
        if isinstance(randoms, np.random.Generator):
            points: NDArray[np.float64] = randoms.beta(alpha, beta)
        else:
            points = np.stack([each.beta(a, b) for each, a, b in zip(randoms, alpha, beta, strict=True)])
        return torch.from_numpy(points.clip(EDGE, 1 - EDGE)).float()

    def log_prob(self, outputs: Tensor, choices: Tensor) -> Tensor:
        """(B,), the logarithm of the density in the unit cube."""
        alpha, beta = _parameters(outputs)
        densities = (alpha - 1) * choices.log() + (beta - 1) * (1 - choices).log() - _log_beta(alpha, beta)
        return densities.sum(1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """(B,), in nats relative to the uniform distribution."""
        alpha, beta = _parameters(outputs)
        total = alpha + beta
        entropies = _log_beta(alpha, beta) - (alpha - 1) * alpha.digamma() - (beta - 1) * beta.digamma()
        return (entropies + (total - 2) * total.digamma()).sum(1)


ActionDistribution = Categorical | Beta


def _parameters(outputs: Tensor) -> tuple[Tensor, Tensor]:
    alpha, beta = (functional.softplus(outputs) + 1).chunk(2, 1)
    return alpha, beta


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()
