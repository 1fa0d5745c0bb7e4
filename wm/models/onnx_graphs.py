"""V, M and C as ONNX graphs of one step, for runtimes without torch.

M's graph has the signature of other runtimes of latent dynamics (onnx-world-model): observation, action, state ->
next_state, observation_prediction, reward, continuation. Its observation is a latent of V, and its state one vector, of
which the first columns are the h that C sees. Weights and results are float32.
Shapes: B rows, S frame side, C channels, Z latents, A encoded action width, H hidden, K mixtures.
"""

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from wm.actions import MOST_OPPOSED
from wm.models.controller import THRESHOLD, Controller
from wm.models.mdnrnn.network import MdnRnn, expected
from wm.models.mdnrnn.predictor import Predictor
from wm.models.mdnrnn.rollout_network import RolloutNetwork
from wm.models.vae.networks import Vae

OPSET = 20  # of ONNX; every onnxruntime since 1.17 has it
EXAMPLE_ROWS = 2  # with which a graph is traced: a single row would be taken for a constant


@dataclass(frozen=True)
class Graph:
    """A module to export: its inputs by name, of `EXAMPLE_ROWS` rows, and the names of its outputs."""

    module: nn.Module
    inputs: Mapping[str, Tensor]
    outputs: Sequence[str]

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """What torch computes from these inputs."""
        with torch.no_grad():
            outputs = self.module(*inputs)
        return outputs if isinstance(outputs, tuple) else (outputs,)


class _Encoder(nn.Module):
    def __init__(self, vae: Vae) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        return self.vae.encode(frames)


class _Decoder(nn.Module):
    def __init__(self, vae: Vae) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, z: Tensor) -> Tensor:
        return self.vae.decode(z).permute(0, 2, 3, 1)


class _MdnRnnStep(nn.Module):
    def __init__(self, model: MdnRnn) -> None:
        super().__init__()
        self.model = model

    def forward(self, z: Tensor, action: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        model, hidden = self.model, self.model.hidden
        before = state[:, :hidden], state[:, hidden:]
        h, c = torch.lstm_cell(torch.cat([z, action], 1), before, *model.lstm.all_weights[0])
        prediction = model.predict(z, h)
        end = model.end_probability(prediction)
        return torch.cat([h, c], 1), expected(prediction), prediction.reward, 1 - end


class _Mixture(nn.Module):
    def __init__(self, model: MdnRnn) -> None:
        super().__init__()
        self.model = model

    def forward(self, z: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        prediction = self.model.predict(z, state[:, : self.model.hidden])
        return prediction.logits, prediction.mean, prediction.log_sigma


class _RolloutStep(nn.Module):
    def __init__(self, model: RolloutNetwork) -> None:
        super().__init__()
        self.model = model
        self.widths = [part.shape[1] for part in model.initial_state(1)]

    def forward(self, z: Tensor, action: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        model = self.model
        before = state.split(self.widths, 1)
        inputs, context, after = model.remember(model.standardise(z), action, before)
        following = model.predict(inputs, context)
        reward, end = model.outcome(inputs, following)
        return torch.cat(after, 1), following * model.z_std + model.z_mean, reward, 1 - end


class _Policy(nn.Module):
    """C with final parameters, on those of its inputs that it takes. It acts likeliest."""

    parameters_: Tensor

    def __init__(self, controller: Controller, parameters: Tensor, h: int) -> None:
        super().__init__()
        self.controller, self.takes_h = controller, h > 0
        self.register_buffer("parameters_", parameters)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        controller, rest = self.controller, list(inputs)
        z = rest.pop(0)
        before = rest.pop(0) if controller.difference else z
        action = rest.pop(0) if controller.previous_action else z[:, :0]
        h = rest.pop(0) if self.takes_h else z[:, :0]
        features = controller.features(z, before, action, h)
        outputs = controller.evaluate(self.parameters_.expand(z.shape[0], -1), features)
        return self._actions(controller.choose(outputs)), outputs

    def _actions(self, choices: Tensor) -> Tensor:
        """The same as `Controller.actions`, in torch."""
        controller = self.controller
        if controller.head == "argmax":
            return choices.argmax(1)
        if controller.head == "ordered":
            index = (choices[:, 0] > THRESHOLD).long() - (choices[:, 0] < -THRESHOLD).long() + 1
            return torch.tensor(controller.ordered)[index]
        if controller.head == "categorical":
            return torch.tensor(controller.ordered)[choices] if controller.ordered else choices
        return self._box(torch.tanh(choices)) if controller.head == "tanh" else self._spread(choices)

    def _bounds(self) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.controller.space.low), torch.tensor(self.controller.space.high)

    def _box(self, squashed: Tensor) -> Tensor:
        low, high = self._bounds()
        one_sided = (low == 0).cumsum(0) * (low == 0) > 1  # all but the first of them
        return torch.where(one_sided, squashed.clamp(0, 1) * high, low + (squashed + 1) / 2 * (high - low))

    def _spread(self, points: Tensor) -> Tensor:
        low, high = self._bounds()
        if self.controller.opposed is None:
            return low + points * (high - low)
        first, second = self.controller.opposed
        points = torch.cat([points[:, :second], torch.zeros_like(points[:, :1]), points[:, second:]], 1)
        signed, action = 2 * points[:, first] - 1, low + points * (high - low)
        columns = list(action.unbind(1))
        columns[first] = signed.clamp(min=0) * high[first]
        columns[second] = (-signed).clamp(min=0) * MOST_OPPOSED * high[second]
        return torch.stack(columns, 1)


def encoder(vae: Vae) -> Graph:
    """frames (B, S, S, C) uint8 -> z (B, Z), the mean of q(z|frame), and logvar (B, Z)."""
    frames = torch.zeros(EXAMPLE_ROWS, vae.size, vae.size, vae.channels, dtype=torch.uint8)
    return Graph(_Encoder(vae), {"frames": frames}, ("z", "logvar"))


def decoder(vae: Vae) -> Graph:
    """z (B, Z) -> images (B, S, S, C) from 0 to 1."""
    return Graph(_Decoder(vae), {"z": torch.zeros(EXAMPLE_ROWS, vae.latent)}, ("images",))


def step(model: Predictor, action_width: int) -> Graph:
    """observation (B, Z), action (B, A), state (B, .) -> next_state (B, .), observation_prediction (B, Z), the mean of
    the next latent; reward (B,) and continuation (B,), the probability that the episode goes on."""
    module = _MdnRnnStep(model) if isinstance(model, MdnRnn) else None
    if isinstance(model, RolloutNetwork):
        module = _RolloutStep(model)  # type: ignore[assignment]
    assert module is not None
    state = torch.cat(model.initial_state(EXAMPLE_ROWS), 1)
    inputs = {
        "observation": torch.zeros(EXAMPLE_ROWS, model.latent),
        "action": torch.zeros(EXAMPLE_ROWS, action_width),
        "state": state,
    }
    return Graph(module, inputs, ("next_state", "observation_prediction", "reward", "continuation"))


def mixture(model: MdnRnn) -> Graph:
    """observation (B, Z) and the state after it (B, 2 H) -> logits, means and log_sigmas (B, Z, K) of the next
    latent."""
    state = torch.cat(model.initial_state(EXAMPLE_ROWS), 1)
    inputs = {"observation": torch.zeros(EXAMPLE_ROWS, model.latent), "state": state}
    return Graph(_Mixture(model), inputs, ("logits", "means", "log_sigmas"))


def policy(controller: Controller, parameters: Tensor, latent: int, h: int) -> Graph:
    """z (B, Z) and what else C takes, z_before (B, Z), action_before (B, A), h (B, H) -> action, (B,) int64 or (B,
    dimensions) float32, and C's outputs before its head. With a memory, `h` is its width, else 0."""
    inputs = {"z": torch.zeros(EXAMPLE_ROWS, latent)}
    if controller.difference:
        inputs["z_before"] = torch.zeros(EXAMPLE_ROWS, latent)
    if controller.previous_action:
        inputs["action_before"] = torch.zeros(EXAMPLE_ROWS, controller.space.width)
    if h:
        inputs["h"] = torch.zeros(EXAMPLE_ROWS, h)
    return Graph(_Policy(controller, parameters, h), inputs, ("action", "outputs"))


def to_onnx(graph: Graph, facts: Mapping[str, str]) -> bytes:
    """The graph as an ONNX file for any number of rows. `facts` are its metadata."""
    # The bound of rows means nothing to a runtime; torch.export asks for one.
    batch = torch.export.Dim("batch", min=1, max=1 << 16)
    rows: Any = tuple({0: batch} for _ in graph.inputs)
    is_variadic = isinstance(graph.module, _Policy)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it says that torchvision is not installed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations within torch
            program = torch.onnx.export(
                graph.module.eval(), tuple(graph.inputs.values()), dynamo=True, opset_version=OPSET, verbose=False,
                input_names=list(graph.inputs), output_names=list(graph.outputs),
                dynamic_shapes=(rows,) if is_variadic else rows,
            )  # fmt: skip
    finally:
        logger.setLevel(level)
    assert program is not None
    program.model.metadata_props.update(facts)
    data: bytes = program.model_proto.SerializeToString()
    return data
