"""M for inference, step by step: weights packed once, for dreams of thousands of steps and for acting.

- The four gates are one matrix product of [z, action, h]; the heads are ordered mixture by mixture.
- tanh(x) is 2 sigmoid(2x) - 1, because torch's tanh takes several times as long as its sigmoid. So one sigmoid serves
  all four gates, that of the cell's candidate with doubled weights.
- A mixture's component is sampled by inverting its cumulative weights: one uniform number per latent, not one per
  component.
Products may be in bfloat16; state, gates, samples and rewards stay in float32.
Shapes: N dreams, Z latents, A encoded action width, K mixtures, H hidden.
"""

import math

import torch
from torch import Tensor

from wm.models.mdnrnn.mixture_nll import LOG_SIGMA
from wm.models.mdnrnn.network import MdnRnn
from wm.models.mdnrnn.predictor import Bounds, Sample, State
from wm.models.onednn import linear


class MdnRnnCell:
    """Steps with an M whose weights are final, fastest with `rows` dreams at a time."""

    def __init__(self, model: MdnRnn, rows: int, dtype: torch.dtype = torch.float32) -> None:
        lstm = dict(model.lstm.named_parameters())
        self.model, self._dtype = model, dtype
        with torch.no_grad():
            gates = torch.cat([lstm["weight_ih_l0"], lstm["weight_hh_l0"]], 1)
            bias = lstm["bias_ih_l0"] + lstm["bias_hh_l0"]
            candidate = slice(2 * model.hidden, 3 * model.hidden)
            # tanh(x) = 2 sigmoid(2x) - 1, so the candidate's weights are doubled once.
            gates[candidate] *= 2
            bias[candidate] *= 2
            self._gates = linear(gates.to(dtype), bias.to(dtype), rows)
            order = model.component_order()
            self._heads = linear(model.heads.weight[order].to(dtype), model.heads.bias[order].to(dtype), rows)

    @torch.inference_mode()
    def step(self, z: Tensor, action: Tensor, state: State) -> State:
        """z (N, Z), action (N, A), state -> state."""
        # Products in bf16, the state in float32: a rounded state would drift over thousands of steps.
        inputs = torch.cat([z, action, state[0]], 1).to(self._dtype)
        input_gate, forget_gate, candidate, output_gate = self._gates(inputs).float().sigmoid_().chunk(4, 1)
        c = torch.addcmul(forget_gate * state[1], input_gate, candidate.mul_(2).sub_(1))
        return output_gate * torch.sigmoid(2 * c).mul_(2).sub_(1), c

    def advance(
        self, z: Tensor, action: Tensor, state: State, temperature: float, random: torch.Generator, bounds: Bounds
    ) -> tuple[Sample, State]:
        """A step, and a sample of the next one with latents within the bounds."""
        state = self.step(z, action, state)
        sample = self.sample(z, state[0], temperature, random)
        return (sample._replace(z=torch.clamp(sample.z, *bounds)) if bounds else sample), state

    @torch.inference_mode()
    def sample(self, z: Tensor, h: Tensor, temperature: float, generator: torch.Generator) -> Sample:
        """A sample of the next step, z being the latent and h the hidden state after it: logits / temperature, sigma *
        sqrt(temperature) (Ha & Schmidhuber, A.2)."""
        model = self.model
        count, latent, mixtures = len(z), model.latent, model.mixtures
        mixture, rest = self._heads(h.to(self._dtype)).split([3 * latent * mixtures, 2], 1)
        mixture = mixture.unflatten(1, (3, mixtures, latent))
        cumulative = torch.softmax(mixture[:, 0].float() / temperature, 1).cumsum(1)
        uniform = torch.rand(count, 1, latent, generator=generator, device=z.device)
        component = (cumulative[:, :-1] < uniform).sum(1, keepdim=True)
        noise = torch.randn(count, latent, generator=generator, device=z.device)
        index = component[:, None].expand(count, 2, 1, latent)
        mean, log_sigma = mixture[:, 1:].gather(2, index).float().squeeze(2).unbind(1)
        sigma = log_sigma.clamp(*LOG_SIGMA).exp() * math.sqrt(temperature)
        reward, end_logit = rest.float().unbind(1)
        # Training weighs ends by end_weight; the logarithm takes that out of the odds again.
        end = torch.sigmoid(end_logit - math.log(model.end_weight))
        return Sample(z + mean + sigma * noise, reward * model.reward_std + model.reward_mean, end)
