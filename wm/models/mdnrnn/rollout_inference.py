"""The RolloutNetwork for inference, step by step, with weights packed once. State and latents stay in float32; products
may be in bfloat16. Shapes: N dreams, Z latents, A encoded action width.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.mdnrnn.predictor import Bounds, Sample, State
from wm.models.mdnrnn.rollout_network import RolloutNetwork
from wm.models.onednn import Layer, linear

NOISE = 0.25  # of the residuals of M's one-step predictions, in a dream at temperature 1


class RolloutCell:
    """Steps with an M whose weights are final, fastest with `rows` dreams at a time."""

    def __init__(self, model: RolloutNetwork, rows: int, dtype: torch.dtype = torch.float32) -> None:
        self.model, self._rows, self._dtype = model, rows, dtype
        with torch.no_grad():
            self._gates = None if model.lstm is None else self._packed_gates(model.lstm)
            self._change, self._reward, self._end = (
                self._packed(layers) for layers in (model.change, model.reward.layers, model.end)
            )

    def _packed_gates(self, lstm: nn.LSTM) -> Layer:
        """The four gates as one product of [inputs, h]; tanh(x) is 2 sigmoid(2x) - 1 (see inference.py)."""
        input_weights, hidden_weights, input_bias, hidden_bias = lstm.all_weights[0]
        weights, bias = torch.cat([input_weights, hidden_weights], 1), input_bias + hidden_bias
        candidate = slice(2 * lstm.hidden_size, 3 * lstm.hidden_size)
        weights[candidate] *= 2
        bias[candidate] *= 2
        return linear(weights.to(self._dtype), bias.to(self._dtype), self._rows)

    def _packed(self, layers: nn.Module) -> Layer:
        packed = [
            linear(layer.weight.to(self._dtype), layer.bias.to(self._dtype), self._rows)
            for layer in layers.children()
            if isinstance(layer, nn.Linear)
        ]

        def run(x: Tensor) -> Tensor:
            x = x.to(self._dtype)
            for layer in packed[:-1]:
                x = functional.silu(layer(x), inplace=True)
            return packed[-1](x).float()

        return run

    @torch.inference_mode()
    def step(self, z: Tensor, action: Tensor, state: State) -> State:
        """z (N, Z), action (N, A), state -> state."""
        return self._remember(z, action, state)[2]

    def _remember(self, z: Tensor, action: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """The same as RolloutNetwork.remember, from V's z."""
        model = self.model
        z = model.standardise(z)
        if self._gates is None:
            return model.remember(z, action, state)
        h, c, previous, started = state
        inputs = torch.cat([z, (z - previous) / model.difference_std * started, action], -1)
        gates = self._gates(torch.cat([inputs, h], 1).to(self._dtype)).float().sigmoid_()
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, 1)
        c = torch.addcmul(forget_gate * c, input_gate, candidate.mul_(2).sub_(1))
        h = output_gate * torch.sigmoid(2 * c).mul_(2).sub_(1)
        return inputs, h, (h, c, z, torch.ones_like(started))

    @torch.inference_mode()
    def advance(
        self, z: Tensor, action: Tensor, state: State, temperature: float, random: torch.Generator, bounds: Bounds
    ) -> tuple[Sample, State]:
        """A step, and a sample of the next one with latents within the bounds: the prediction with Gaussian noise of
        variance NOISE^2 * temperature in units of M's residuals, and the mean reward of the transition shown."""
        model = self.model
        inputs, context, state = self._remember(z, action, state)
        change = self._change(torch.cat([inputs, context], 1)) * model.difference_std
        noise = torch.randn(change.shape, generator=random, device=z.device) * model.residual_std
        next_z = (
            inputs[:, : model.latent] + change + NOISE * math.sqrt(temperature) * noise
        ) * model.z_std + model.z_mean
        if bounds:
            next_z = torch.clamp(next_z, *bounds)
        transition = model.transition(inputs, model.standardise(next_z))
        end = torch.sigmoid(self._end(transition)[:, 0])
        log_probs = functional.log_softmax(self._reward(transition).unflatten(1, (2, -1)), -1)
        return Sample(next_z, model.mean_reward(log_probs, end), end), state
