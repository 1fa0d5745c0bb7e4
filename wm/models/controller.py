"""C: a policy on the mean z and more, its parameters one flat vector.

CMA-ES evolves a linear one. With `hidden` units it is a perceptron with one tanh layer, whose outputs are scaled:
CMA-ES takes equal steps in every weight, and a few units within [-1, 1] have a smaller norm than z. A policy gradient
trains one with SiLU `layers`, whose outputs are a distribution over actions.

Heads, from the outputs u to an action:
- `argmax`: one output per discrete action, the largest wins;
- `ordered`: one output, three ordered actions (down, stay, up) for paddle games: u < -0.3, between, u > 0.3;
- `tanh`: one output per dimension of a box; non-negative dimensions are (tanh u + 1) / 2 for the first of CarRacing's
  pedals (gas) and tanh u clipped at 0 for the others (brake), as in the paper's code;
- `categorical`: the logits of the discrete actions, or of the ordered ones where the environment has them;
- `beta`: two parameters of a Beta distribution for each axis of a box (wm/models/action_distributions.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from wm.actions import MOST_OPPOSED, ActionSpace
from wm.errors import UsageProblem
from wm.models import onednn
from wm.models.action_distributions import ActionDistribution, Beta, Categorical, Randoms
from wm.models.mdnrnn.predictor import Predictor

# Of an output within -1 to 1. Between -0.3 and 0.3 the action in the middle is taken: Pong's paddle can rest.
THRESHOLD = 0.3
# Scale of the hidden layer times the root of its units: 12.0, 12.7 and 12.8 in the three searches that were tuned.
# The outputs of 8 units have a norm of at most 2.8, z has 7.4: on CarRacing 8 units validated at 269 after 20
# generations without the scale, at 473 with it.
HIDDEN_GAIN = 4.5 * 8**0.5
SERVE_STEPS = 2  # with sticky actions one serve in 256 is lost, two in 65,536


@dataclass(frozen=True)
class ControllerConfig:
    """C's head, its hidden units (0: linear), and the memory whose h it takes besides z: `trained` is M, `untrained` an
    M before training (with this seed), `none` no memory.

    A C that was trained by policy gradient has the units of its `layers`. It may take the `difference` of z from the
    step before and the `previous_action`, and act by samples of its distribution (`sampled`) or always likeliest.
    """

    head: str
    hidden: int = 0
    memory: str = "trained"
    memory_seed: int = 0
    layers: tuple[int, ...] = ()
    difference: bool = False
    previous_action: bool = False
    sampled: bool = False

    @property
    def memory_identity(self) -> tuple[str, int]:
        """Equal for two configs with the same memory: only an untrained one depends on its seed."""
        return self.memory, self.memory_seed if self.memory == "untrained" else 0


@dataclass(frozen=True)
class Controller:
    """The shape of C: its `inputs` (see `features`), the action space, the head, three actions where they are
    `ordered`, the units of its `hidden` layer (0: linear) or of its `layers`, the action with which the player serves,
    and two `opposed` dimensions of a box: one axis, the first above 0 and the second below."""

    inputs: int
    space: ActionSpace
    head: str
    ordered: tuple[int, int, int] | None = None
    hidden: int = 0
    serve: int | None = None
    layers: tuple[int, ...] = ()
    difference: bool = False
    # The action before this one, which matters with sticky actions: a quarter of the actions repeat it.
    previous_action: bool = False
    sampled: bool = False
    opposed: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        discrete = self.space.discrete
        fits = {"argmax": discrete, "tanh": not discrete, "ordered": self.ordered is not None}
        if not (fits | {"categorical": discrete, "beta": not discrete})[self.head]:
            kind = "discrete" if discrete else "continuous"
            raise UsageProblem(f"--set head={self.head} does not fit this environment's {kind} actions; use head=auto.")

    @property
    def distribution(self) -> ActionDistribution | None:
        """Of the actions, where the outputs describe one."""
        if self.head == "categorical":
            return Categorical(len(self.ordered) if self.ordered else self.space.count)
        return Beta(self.space.width - (self.opposed is not None)) if self.head == "beta" else None

    @property
    def outputs(self) -> int:
        """Linear outputs of the head."""
        if self.distribution is not None:
            return self.distribution.outputs
        return 1 if self.head == "ordered" else self.space.width

    @property
    def _layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer."""
        inner = self.layers or ((self.hidden,) if self.hidden else ())
        return list(pairwise((self.inputs, *inner, self.outputs)))

    @property
    def output_scale(self) -> float:
        """The factor of the outputs of a perceptron that CMA-ES evolves; 1 for the others."""
        # By the root of the units, with which the norm of their outputs grows.
        return HIDDEN_GAIN / self.hidden**0.5 if self.hidden else 1.0

    @property
    def parameters(self) -> int:
        """Length of the flat vector: layer by layer the weights row by row, then the biases."""
        return sum((inputs + 1) * outputs for inputs, outputs in self._layers)

    def features(self, z: Tensor, z_before: Tensor, action_before: Tensor, h: Tensor) -> Tensor:
        """C's inputs (B, inputs): z (B, Z), its difference from the step before, the encoded action before (B, A) and h
        (B, H), as far as C takes them. At an episode's start z_before is z, and action_before zeros."""
        parts = [z]
        if self.difference:
            parts.append(z - z_before)
        if self.previous_action:
            parts.append(action_before)
        return torch.cat([*parts, h], 1)[:, : self.inputs]

    def act(self, weights: Tensor, features: Tensor, randoms: Randoms | None = None) -> NDArray[Any]:
        """Actions of B policies, each with its own weights (B, parameters), on features (B, inputs).

        Returns what gymnasium takes: (B,) integers or (B, dimensions) float32 within the box. They are drawn with
        `randoms`; without, they are the likeliest.
        """
        return self.actions(self.choose(self.evaluate(weights, features), randoms))

    def evaluate(self, weights: Tensor, features: Tensor) -> Tensor:
        """The outputs u (B, outputs) of B policies, each with its own weights (B, parameters)."""
        u = features
        for number, (matrix, bias) in enumerate(self.split(weights)):
            inputs = self._activate(u, number)
            if self.layers:
                u = torch.baddbmm(bias[..., None], matrix, inputs[..., None])[..., 0]
            else:  # one vector per policy: a batched matrix product takes five times as long for few outputs
                u = (matrix * inputs[:, None]).sum(-1) + bias
            if number and self.hidden:
                u = u * self.output_scale
        return u

    def pack(self, parameters: Tensor, rows: int) -> Callable[[Tensor], Tensor]:
        """features -> u like `evaluate`, for one policy with `layers` that acts in all of `rows` rows."""
        steps = [onednn.linear(matrix[0], bias[0], rows) for matrix, bias in self.split(parameters[None])]

        def evaluate(features: Tensor) -> Tensor:
            u = features
            for number, step in enumerate(steps):
                u = step(self._activate(u, number))
            return u

        return evaluate

    def split(self, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(matrix (B, outputs, inputs), bias (B, outputs)) of each layer."""
        layers, offset = [], 0
        for inputs, outputs in self._layers:
            size = inputs * outputs
            matrix = weights[:, offset : offset + size].unflatten(1, (outputs, inputs))
            layers.append((matrix, weights[:, offset + size : offset + size + outputs]))
            offset += size + outputs
        return layers

    def _activate(self, u: Tensor, number: int) -> Tensor:
        """The inputs of a layer from the outputs of the one before."""
        if not number:
            return u
        return functional.silu(u) if self.layers else torch.tanh(u)

    def choose(self, u: Tensor, randoms: Randoms | None = None) -> Tensor:
        """What is chosen by the outputs u: of a distribution a sample or the likeliest choice, else u itself."""
        if self.distribution is None:
            return u
        return self.distribution.likeliest(u) if randoms is None else self.distribution.draw(u, randoms)

    def actions(self, choices: Tensor) -> NDArray[Any]:
        """The actions that choices stand for."""
        if self.head == "argmax":
            return choices.argmax(1).numpy()
        if self.head == "ordered":
            assert self.ordered is not None
            index = (choices[:, 0] > THRESHOLD).int() - (choices[:, 0] < -THRESHOLD).int() + 1
            return np.array(self.ordered)[index.numpy()]
        if self.head == "categorical":
            return np.array(self.ordered)[choices.numpy()] if self.ordered else choices.numpy()
        return self._box(torch.tanh(choices).numpy()) if self.head == "tanh" else self._spread(choices.numpy())

    def _box(self, squashed: NDArray[np.float32]) -> NDArray[np.float32]:
        low, high = np.array(self.space.low, np.float32), np.array(self.space.high, np.float32)
        action = (low + (squashed + 1) / 2 * (high - low)).astype(np.float32)
        # gymnasium's own CarRacing has gas and brake from 0; the first such axis keeps the whole range of C's output.
        one_sided = np.flatnonzero(low == 0)
        for dimension in one_sided[1:]:
            action[:, dimension] = np.clip(squashed[:, dimension], 0, 1) * high[dimension]
        return action

    def _spread(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Points of the unit cube (B, axes) in the box."""
        low, high = np.array(self.space.low, np.float32), np.array(self.space.high, np.float32)
        if self.opposed is None:
            return (low + points * (high - low)).astype(np.float32)
        first, second = self.opposed
        points = np.insert(points, second, 0, axis=1)
        signed = 2 * points[:, first] - 1
        action: NDArray[np.float32] = (low + points * (high - low)).astype(np.float32)
        # One axis for both: above 0 the first acts, below 0 the second, so that gas and brake never act together.
        action[:, first] = signed.clip(0, None) * high[first]
        action[:, second] = (-signed).clip(0, None) * MOST_OPPOSED * high[second]
        return action


def pick_head(name: str, space: ActionSpace, suggested: str) -> str:
    """Resolve `auto`: the registry's suggestion if it has one, else by the kind of action space."""
    if name != "auto":
        return name
    if suggested == "ordered" and space.discrete:
        return "ordered"
    return "argmax" if space.discrete else "tanh"


@torch.inference_mode()
def controller_inputs(memory: Predictor | None, z: NDArray[np.float32], actions: Tensor) -> NDArray[np.float64]:
    """C's inputs [z, h] (T, Z + H) along an episode, for z (T, Z) and encoded actions (T, A). h is the one before the
    step; without a memory they are z alone."""
    if memory is None:
        return z.astype(np.float64)
    hidden = memory.hidden_states(torch.from_numpy(z)[None], actions[None])[0].numpy()
    return np.concatenate([z, np.pad(hidden[:-1], ((1, 0), (0, 0)))], -1).astype(np.float64)
