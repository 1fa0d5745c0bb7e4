"""C: a linear policy on [mean z, h], its parameters one flat vector that CMA-ES evolves. With `hidden` units it is a
perceptron with one tanh layer, whose outputs are scaled: CMA-ES takes equal steps in every weight, and a few units
within [-1, 1] have a smaller norm than z.

Heads, from the linear output u to an action:
- `argmax`: one output per discrete action, the largest wins;
- `ordered`: one output, three ordered actions (down, stay, up) for paddle games: u < -0.3, between, u > 0.3;
- `tanh`: one output per dimension of a box; non-negative dimensions are (tanh u + 1) / 2 for the first of CarRacing's
  pedals (gas) and tanh u clipped at 0 for the others (brake), as in the paper's code.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.actions import ActionSpace
from wm.errors import UsageProblem
from wm.models.mdnrnn.predictor import Predictor

THRESHOLD = 0.3
# Scale of the hidden layer times the root of its units: 12.0, 12.7 and 12.8 in the three searches that were tuned.
# The outputs of 8 units have a norm of at most 2.8, z has 7.4: on CarRacing 8 units validated at 269 after 20
# generations without the scale, at 473 with it.
HIDDEN_GAIN = 4.5 * 8**0.5
SERVE_STEPS = 2  # with sticky actions one serve in 256 is lost, two in 65,536


@dataclass(frozen=True)
class ControllerConfig:
    """C's head, its hidden units (0: linear), and the memory whose h it takes besides z: `trained` is M, `untrained` an
    M before training (with this seed), `none` no memory."""

    head: str
    hidden: int = 0
    memory: str = "trained"
    memory_seed: int = 0

    @property
    def memory_identity(self) -> tuple[str, int]:
        """Equal for two configs with the same memory: only an untrained one depends on its seed."""
        return self.memory, self.memory_seed if self.memory == "untrained" else 0


@dataclass(frozen=True)
class Controller:
    """The shape of C: `inputs` = Z + H, the action space, the head, for `ordered` its three actions, the units of its
    hidden layer (0: linear), and the action that puts the ball into play where the player serves."""

    inputs: int
    space: ActionSpace
    head: str
    ordered: tuple[int, int, int] | None = None
    hidden: int = 0
    serve: int | None = None

    def __post_init__(self) -> None:
        fits = {"argmax": self.space.discrete, "tanh": not self.space.discrete, "ordered": self.ordered is not None}
        if not fits[self.head]:
            kind = "discrete" if self.space.discrete else "continuous"
            raise UsageProblem(f"--set head={self.head} does not fit this environment's {kind} actions; use head=auto.")

    @property
    def outputs(self) -> int:
        """Linear outputs of the head."""
        return 1 if self.head == "ordered" else self.space.width

    @property
    def _layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer."""
        if self.hidden:
            return [(self.inputs, self.hidden), (self.hidden, self.outputs)]
        return [(self.inputs, self.outputs)]

    @property
    def parameters(self) -> int:
        """Length of the flat vector: layer by layer the weights row by row, then the biases."""
        return sum((inputs + 1) * outputs for inputs, outputs in self._layers)

    def act(self, weights: Tensor, features: Tensor) -> NDArray[Any]:
        """Actions of B policies, each with its own weights (B, parameters), on features (B, inputs).

        Returns what gymnasium takes: (B,) integers or (B, dimensions) float32 within the box.
        """
        u, offset = features, 0
        for number, (inputs, outputs) in enumerate(self._layers):
            size = inputs * outputs
            matrix = weights[:, offset : offset + size].unflatten(1, (outputs, inputs))
            bias = weights[:, offset + size : offset + size + outputs]
            # One vector per policy: a batched matrix product takes five times as long.
            u = (matrix * (torch.tanh(u) if number else u)[:, None]).sum(-1) + bias
            if number:
                u = u * (HIDDEN_GAIN / self.hidden**0.5)
            offset += size + outputs
        if self.head == "argmax":
            return u.argmax(1).numpy()
        if self.head == "ordered":
            assert self.ordered is not None
            index = (u[:, 0] > THRESHOLD).int() - (u[:, 0] < -THRESHOLD).int() + 1
            return np.array(self.ordered)[index.numpy()]
        return self._box(torch.tanh(u).numpy())

    def _box(self, squashed: NDArray[np.float32]) -> NDArray[np.float32]:
        low, high = np.array(self.space.low, np.float32), np.array(self.space.high, np.float32)
        action = (low + (squashed + 1) / 2 * (high - low)).astype(np.float32)
        one_sided = np.flatnonzero(low == 0)
        for dimension in one_sided[1:]:
            action[:, dimension] = np.clip(squashed[:, dimension], 0, 1) * high[dimension]
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
