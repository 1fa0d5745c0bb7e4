"""Plays many controllers in as many dreams at a time."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.dreams.env import Dreams, InitialStates
from wm.models.controller import SERVE_STEPS, Controller
from wm.models.mdnrnn.predictor import Predictor
from wm.seeding import generator, integer


@dataclass(frozen=True)
class DreamReturns:
    """Returns and lengths of N dreams, whether each terminated before the step limit, and the mean and variance of z
    per dimension, (Z,), over all their steps."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    z_mean: NDArray[np.float64]
    z_var: NDArray[np.float64]


@torch.inference_mode()
def rollout_dreams(
    mdnrnn: Predictor,
    controller: Controller,
    weights: Tensor,
    initial: InitialStates,
    temperature: float,
    max_steps: int,
    *seed_path: int | str,
    dtype: torch.dtype = torch.float32,
) -> DreamReturns:
    """Play N controllers, weights (N, parameters), from N initial states, with matrix products in `dtype`. Where the
    player serves, dreams begin with a serve, as real episodes do."""
    dreams = Dreams(mdnrnn, initial, temperature, integer(*seed_path), dtype)
    count = len(weights)
    # float64: sums over up to a thousand steps of many dreams.
    returns, lengths = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    terminated = torch.zeros(count, dtype=torch.bool)
    sums = torch.zeros(2, mdnrnn.latent, dtype=torch.float64)
    rows, alive = torch.arange(count), torch.ones(count, dtype=torch.bool)
    z_before, encoded = initial.z_before, initial.action_before
    randoms = generator(*seed_path, "actions") if controller.sampled else None
    for step in range(max_steps):
        actions = controller.act(weights, controller.features(dreams.z, z_before, encoded, dreams.hidden), randoms)
        if controller.serve is not None and step < SERVE_STEPS:
            actions[:] = controller.serve
        z_before, encoded = dreams.z, torch.from_numpy(controller.space.encode(actions))
        reward, ended = dreams.step(encoded)
        returns[rows] += torch.where(alive, reward.double(), 0.0)
        lengths[rows] += alive
        z = torch.where(alive[:, None], dreams.z, 0.0)
        sums += torch.stack([z.sum(0), z.square().sum(0)])
        alive &= ~ended
        remaining = int(alive.sum())
        if not remaining:
            break
        if 2 * remaining <= len(rows):  # half of the batch has ended: compute the others alone
            terminated[rows] = ~alive
            dreams.keep(alive)
            z_before, encoded = z_before[alive], encoded[alive]
            rows, weights, alive = rows[alive], weights[alive], alive[alive]
    terminated[rows] = ~alive
    mean, square = (sums / lengths.sum()).numpy()
    return DreamReturns(returns.numpy(), lengths.numpy(), terminated.numpy(), mean, np.maximum(square - mean**2, 0))
