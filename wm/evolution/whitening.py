"""Whitening of the search space: a step of CMA-ES then changes C's output equally in every direction of its inputs.

V's latents have equal variances on its training frames, not where a trained C acts. On LunarLander z is up to six
times as sensitive to one state variable as to another, and a search with equal steps in all weights adapts to that
late. With inputs x and 1 for the bias, weights W = Y B^T with B B^T near the inverse of the mean of (x, 1) (x, 1)^T
respond equally to equal steps in Y. Directions of little variance stay small: `RIDGE` of the whole variance is added
to each.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

# Of the total variance. Noise that hardly varies would otherwise be amplified to the size of the rest.
RIDGE = 0.0025
MINIMUM = 1e-6  # added as well, for inputs that are all constant

Matrix = NDArray[np.float64]


def whitener_of(episodes: Sequence[NDArray[np.float32]]) -> Matrix:
    """B (N + 1, N + 1) of C's inputs, (T, N) for each episode. Computed in one thread, as in the search: a resumed
    search depends on its last bit."""
    inputs = np.concatenate([np.asarray(each, np.float64) for each in episodes])
    ridge = RIDGE * inputs.var(axis=0).sum() + MINIMUM
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], 1)
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        variances, axes = np.linalg.eigh(inputs.T @ inputs / len(inputs))
    whitener: Matrix = axes / np.sqrt(np.maximum(variances, 0) + ridge)
    return whitener


def whiten(parameters: NDArray[np.floating], whitener: Matrix) -> NDArray[np.float64]:
    """Y (outputs x (N + 1),) of C's parameters: the inverse of `unwhiten`."""
    columns, inputs = len(whitener), len(whitener) - 1
    outputs = len(parameters) // columns
    weights = np.c_[parameters[: outputs * inputs].reshape(outputs, inputs), parameters[outputs * inputs :]]
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        solution: NDArray[np.float64] = np.linalg.lstsq(whitener, weights.T.astype(np.float64), rcond=None)[0]
    return solution.T.ravel()


def unwhiten(candidates: Matrix, whitener: Matrix) -> Matrix:
    """C's parameters (M, outputs x (N + 1)) of candidates Y of the same shape: the weights row by row, then the
    biases."""
    rows = candidates.reshape(len(candidates), -1, len(whitener)) @ whitener.T
    return np.concatenate([rows[..., :-1].reshape(len(rows), -1), rows[..., -1]], 1)
