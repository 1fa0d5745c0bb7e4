"""Evening out a search: steps of CMA-ES that change what C says by as much in every direction of what C is given.

V makes its latents alike where it was trained, which is not where a C that has learned something plays: there some
things move z several times as far as others, and a search that starts with equal steps in all weights finds out late.
With x what C is given and 1 for the bias, the weights W = Y B^T with B B^T near the inverse of the mean of (x, 1)
(x, 1)^T answer to steps of equal size in Y alike. Directions that hardly vary are left small: `RIDGE` of the whole
variance is added to each.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

RIDGE = 0.0025
LEAST = 1e-6  # added too, should C be given nothing but constants

Matrix = NDArray[np.float64]


def whitener_of(episodes: Sequence[NDArray[np.float32]], inputs: int = 0) -> Matrix:
    """B (N + 1, N + 1) of what C was given, (T, N) for each episode. If those are but the first of C's `inputs`, B is
    (`inputs` + 1, N + 1) and leaves the weights on the others at zero. One thread, as in the search: its bits are part
    of what a search resumes from."""
    given = np.concatenate([np.asarray(each, np.float64) for each in episodes])
    ridge = RIDGE * given.var(axis=0).sum() + LEAST
    given = np.concatenate([given, np.ones((len(given), 1))], 1)
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        variances, axes = np.linalg.eigh(given.T @ given / len(given))
    found: Matrix = axes / np.sqrt(np.maximum(variances, 0) + ridge)
    return np.insert(found, [len(found) - 1] * max(inputs - len(found) + 1, 0), 0.0, axis=0)


def coordinates_of(parameters: NDArray[np.floating], basis: Matrix) -> NDArray[np.float64]:
    """Y (outputs x columns of B,), whose weights are those of C's parameters; weights B leaves out are lost."""
    columns, inputs = len(basis), len(basis) - 1
    outputs = len(parameters) // columns
    weights = np.c_[parameters[: outputs * inputs].reshape(outputs, inputs), parameters[outputs * inputs :]]
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        found: NDArray[np.float64] = np.linalg.lstsq(basis, weights.T.astype(np.float64), rcond=None)[0].T.ravel()
    return found


def weights_of(candidates: Matrix, basis: Matrix) -> Matrix:
    """Candidates Y (M, outputs x columns of B) as C's parameters, (M, outputs x (N + 1)): the weights row by row, then
    the biases."""
    rows = candidates.reshape(len(candidates), -1, basis.shape[1]) @ basis.T
    return np.concatenate([rows[..., :-1].reshape(len(rows), -1), rows[..., -1]], 1)
