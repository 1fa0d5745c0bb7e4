"""What M's predictions mean in the units of the environment: a small network reads objects' positions from z.

A linear probe misleads: in Pong it misses the ball by 3.4 pixels where a network on the same z misses it by 1.3.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from wm.envs.labels import LIVES
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.evaluation.linear_probe import MIN_ROWS, labels_within_limits
from wm.models.initialization import seeded_initialization
from wm.stats import MIN_EVENTS

# No other sizes were compared; what counts is that V, M and baselines are read by the same network.
UNITS, STEPS, BATCH, LEARNING_RATE = 128, 1000, 256, 3e-3
MIN_STD = 0.05  # of a latent: one that V does not use would be all noise


class PositionProbe:
    """Positions by name from latents."""

    def __init__(self, names: Sequence[str], network: nn.Module, scales: tuple[Tensor, ...]) -> None:
        self.names, self._network, self._scales = list(names), network, scales

    @torch.inference_mode()
    def __call__(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Positions (..., names) from z (..., Z)."""
        z_mean, z_std, mean, std = self._scales
        positions: Tensor = self._network((torch.from_numpy(z) - z_mean) / z_std) * std + mean
        return positions.numpy()


def mean_error(
    names: Sequence[str], predicted: NDArray[np.float32], positions: NDArray[np.floating[Any]]
) -> dict[str, float | None]:
    """Root mean squared error by name, of (N, names) each, over the rows with a position; None for fewer than ten."""
    errors: dict[str, float | None] = {}
    for name, estimate, position in zip(names, predicted.T, positions.T, strict=True):
        finite = np.isfinite(position)
        errors[name] = (
            float(np.sqrt(np.square(estimate[finite] - position[finite]).mean()))
            if finite.sum() >= MIN_EVENTS
            else None
        )
    return errors


def visible_positions(datasets: Sequence[Dataset]) -> dict[str, NDArray[np.float32]]:
    """(rows of all datasets,) by label, of those that a single frame shows; NaN where the object is absent."""
    spec = EnvConfig.of_recipe(datasets[0].recipe).spec().probe
    hidden = (*spec.hidden, LIVES) if spec else ()
    names, *others = [[name for name in dataset.label_names if name not in hidden] for dataset in datasets]
    if spec is None or not names or any(other != names for other in others):
        return {}
    parts = [labels_within_limits(each)[:, [each.label_names.index(name) for name in names]] for each in datasets]
    return dict(zip(names, np.concatenate(parts).T, strict=True))


def fit_position_probe(
    z: NDArray[np.float32], positions: Mapping[str, NDArray[np.floating[Any]]], seed: int
) -> PositionProbe | None:
    """A probe fitted on z (N, Z) and positions (N,) by name; None without positions that vary."""
    names = [
        # A position that never changes teaches the probe nothing.
        name
        for name, values in positions.items()
        if np.isfinite(values).sum() >= MIN_ROWS and np.nanstd(values) > 1e-6
    ]
    if not names:
        return None
    target = torch.from_numpy(np.stack([positions[name] for name in names], 1).astype(np.float32))
    finite = torch.isfinite(target)
    count = finite.sum(0)
    mean = torch.where(finite, target, 0).sum(0) / count
    std = (torch.where(finite, target - mean, 0).square().sum(0) / count).sqrt()
    inputs = torch.from_numpy(z)
    z_mean, z_std = inputs.mean(0), inputs.std(0).clamp(min=MIN_STD)
    inputs, target = (inputs - z_mean) / z_std, torch.where(finite, (target - mean) / std, 0)
    with seeded_initialization(seed, "position probe"):
        network = nn.Sequential(
            nn.Linear(inputs.shape[1], UNITS), nn.SiLU(), nn.Linear(UNITS, UNITS), nn.SiLU(),
            nn.Linear(UNITS, len(names)),
        )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    random = torch.Generator().manual_seed(seed)
    # Gradients, though the evaluation around it runs in inference mode.
    with torch.inference_mode(False), torch.enable_grad():
        for _ in range(STEPS):
            rows = torch.randint(len(inputs), (BATCH,), generator=random)
            error = functional.smooth_l1_loss(network(inputs[rows]), target[rows], reduction="none")
            optimizer.zero_grad(set_to_none=True)
            (error * finite[rows]).mean().backward()
            optimizer.step()
            schedule.step()
    return PositionProbe(names, network, (z_mean, z_std, mean, std))
