"""Actor and critic on C's inputs."""

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wm.actions import ActionSpace
from wm.episodes.latents import Latents
from wm.evolution.transfer import spaced_episodes
from wm.models.controller import Controller, ControllerConfig
from wm.models.initialization import seeded_initialization
from wm.models.mdnrnn.predictor import Predictor
from wm.settings import ControllerSettings

# Inputs that hardly vary, such as an action that is never taken, are not blown up.
LEAST_STD = 0.05
# Rows that are valued at a time: their activations stay in a core's cache, twice as fast as 25,600 rows at once.
VALUED_ROWS = 2048


def policy_config(settings: ControllerSettings, space: ActionSpace, seed: int) -> ControllerConfig:
    """The config of C that these settings describe."""
    return ControllerConfig(
        "categorical" if space.discrete else "beta",
        memory=settings.memory_used,
        memory_seed=seed,
        layers=(settings.units, settings.units),
        difference=settings.difference,
        previous_action=settings.previous_action,
        sampled=True,
    )


def inputs_seen(controller: Controller, memory: Predictor | None, latents: Latents) -> Tensor:
    """C's inputs (N, F) along some of the recorded episodes."""
    rows = ((part.start, part.stop) for part in spaced_episodes(latents))
    return inputs_along(controller, memory, latents, rows)


@torch.no_grad()
def inputs_along(
    controller: Controller, memory: Predictor | None, latents: Latents, rows: Iterable[tuple[int, int]]
) -> Tensor:
    """C's inputs (N, F) in rows that each begin an episode, from the first to before the last."""
    parts = []
    for first, end in rows:
        z = torch.from_numpy(latents.means[first:end])
        actions = torch.from_numpy(latents.space.encode(latents.actions[first:end]))
        h = torch.zeros(len(z), 0) if memory is None else memory.hidden_states(z[None], actions[None])[0]
        z_before = torch.cat([z[:1], z[:-1]])
        parts.append(controller.features(z, z_before, _step_before(actions), _step_before(h)))
    return torch.cat(parts)


def _step_before(columns: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(columns[:1]), columns[:-1]])


class ActorCritic(nn.Module):
    """An actor with the layers of `controller`, and a critic of the same size, on standardised inputs."""

    mean: Tensor
    std: Tensor

    def __init__(self, controller: Controller, seed: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(controller.inputs))
        self.register_buffer("std", torch.ones(controller.inputs))
        widths = controller.inputs, *controller.layers
        with seeded_initialization(seed, "policy gradient"):
            # A nearly uniform policy at first, so that no action is preferred before there is a reason.
            self.actor = _perceptron(widths, controller.outputs, 0.01)
            self.critic = _perceptron(widths, 1, 1.0)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (B, F) -> the actor's outputs (B, O) and values (B,)."""
        x = (features - self.mean) / self.std
        return self.actor(x), self.critic(x)[:, 0]

    def values(self, features: Tensor) -> Tensor:
        """Inputs (B, F) -> values (B,), without a graph."""
        with torch.no_grad():
            blocks = features.split(VALUED_ROWS)
            return torch.cat([self.critic((block - self.mean) / self.std)[:, 0] for block in blocks])

    def standardise(self, features: Tensor) -> None:
        """Standardise from now on by the mean and deviation of these inputs (B, F)."""
        self.mean.copy_(features.mean(0))
        # A single row has no deviation, and torch would give NaN.
        spread = features.std(0) if len(features) > 1 else torch.zeros_like(self.std)
        self.std.copy_(spread.clamp(min=LEAST_STD))

    @torch.no_grad()
    def parameter_vector(self) -> NDArray[np.float32]:
        """The actor as the flat vector of a Controller: standardisation is part of the first layer."""
        first, *others = [layer for layer in self.actor if isinstance(layer, nn.Linear)]
        weight = first.weight / self.std
        parts = [weight, first.bias - weight @ self.mean]
        parts += [part for layer in others for part in (layer.weight, layer.bias)]
        return torch.cat([part.flatten() for part in parts]).numpy()


def _perceptron(widths: tuple[int, ...], outputs: int, gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, units in pairwise(widths):
        layers += [_linear(inputs, units, math.sqrt(2)), nn.SiLU()]
    return nn.Sequential(*layers, _linear(widths[-1], outputs, gain))


def _linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
