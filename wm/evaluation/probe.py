"""What a linear probe can read from latents: ridge regression, trained on some episodes and scored on others.

Probe a sample of z, not its mean: the mean of an untrained encoder already gives a ball's height away (R2 0.7), while
what M and C can rely on is what survives the sample's noise.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RIDGE = 1e-3
FEWEST = 50  # rows in which a thing exists, below which nothing is said of it

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ProbeResult:
    """How well a label is read: R2 and root mean squared error (in the label's units) on held-out rows, and the R2 of
    the same network untrained."""

    r2: float
    error: float
    untrained: float
    rows: int

    def as_json(self) -> dict[str, float | None]:
        """Plain values; None where nothing can be said."""
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}


def read(z: Array, labels: Array, held_z: Array, held_labels: Array) -> list[tuple[float, float, int]]:
    """(R2, error, rows) of every label column from (N, Z) latents. NaN labels are left out; columns that are too rare
    or do not vary give NaN."""
    mean, deviation = z.mean(axis=0), z.std(axis=0) + 1e-8
    inputs, held_inputs = (np.c_[(part - mean) / deviation, np.ones(len(part))] for part in (z, held_z))
    return [
        _read_column(inputs, labels[:, column], held_inputs, held_labels[:, column])
        for column in range(labels.shape[1])
    ]


def _read_column(inputs: Array, label: Array, held_inputs: Array, held_label: Array) -> tuple[float, float, int]:
    seen, held = np.isfinite(label), np.isfinite(held_label)
    rows = int(held.sum())
    if seen.sum() < FEWEST or rows < FEWEST or held_label[held].std() < 1e-6:
        return float("nan"), float("nan"), rows
    x, y = inputs[seen].astype(np.float64), label[seen].astype(np.float64)
    offset = y.mean()
    weights = np.linalg.solve(x.T @ x + RIDGE * len(x) * np.eye(x.shape[1]), x.T @ (y - offset))
    wrong = held_inputs[held] @ weights + offset - held_label[held]
    return float(1 - np.square(wrong).mean() / held_label[held].var()), float(np.sqrt(np.square(wrong).mean())), rows
