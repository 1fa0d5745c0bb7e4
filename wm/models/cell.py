"""M stepped by hand: its weights laid out once, for dreams of thousands of steps and for acting.

- The four gates are one matrix product of [z, action, h]; the heads are laid out mixture by mixture.
- A mixture's component is drawn by inverting its cumulative weights: one uniform number per latent, not one per
  component.
Products may be in bfloat16; state, gates, samples and rewards stay in float32.
Shapes: N dreams, Z latents, A encoded action width, K mixtures, H hidden.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from wm.models.mdnrnn import MdnRnn, State
from wm.models.mixture import LOG_SIGMA


class Drawn(NamedTuple):
    """What came next: `z` (N, Z), `reward` (N,), `end` (N,) the probability that the episode ended."""

    z: Tensor
    reward: Tensor
    end: Tensor


class Cell:
    """The steps of an M whose weights do not change any more."""

    def __init__(self, model: MdnRnn, dtype: torch.dtype = torch.float32) -> None:
        lstm = dict(model.lstm.named_parameters())
        self.model, self._dtype = model, dtype
        with torch.no_grad():
            gates = torch.cat([lstm["weight_ih_l0"], lstm["weight_hh_l0"]], 1)
            self._gates = gates.to(dtype), (lstm["bias_ih_l0"] + lstm["bias_hh_l0"]).to(dtype)
            order = model.by_component()
            self._heads = model.heads.weight[order].to(dtype).contiguous(), model.heads.bias[order].to(dtype)

    @torch.inference_mode()
    def step(self, z: Tensor, action: Tensor, state: State) -> State:
        """z (N, Z), action (N, A), state -> state."""
        inputs = torch.cat([z, action, state[0]], 1).to(self._dtype)
        into, forget, new, out = functional.linear(inputs, *self._gates).float().chunk(4, 1)
        c = torch.sigmoid(forget) * state[1] + torch.sigmoid(into) * torch.tanh(new)
        return torch.sigmoid(out) * torch.tanh(c), c

    @torch.inference_mode()
    def draw(self, z: Tensor, h: Tensor, temperature: float, generator: torch.Generator) -> Drawn:
        """A sample of what follows when the latent was z and the hidden state after it is h: logits / temperature,
        sigma * sqrt(temperature) (Ha & Schmidhuber, A.2)."""
        model = self.model
        count, latent, mixtures = len(z), model.latent, model.mixtures
        out = functional.linear(h.to(self._dtype), *self._heads).float()
        logits, mean, log_sigma = out[:, : 3 * latent * mixtures].view(count, 3, mixtures, latent).unbind(1)
        cumulative = torch.softmax(logits / temperature, 1).cumsum(1)
        uniform = torch.rand(count, 1, latent, generator=generator, device=z.device)
        component = (cumulative[:, :-1] < uniform).sum(1, keepdim=True)
        noise = torch.randn(count, latent, generator=generator, device=z.device)
        sigma = log_sigma.gather(1, component).squeeze(1).clamp(*LOG_SIGMA).exp() * math.sqrt(temperature)
        reward = out[:, -2] * model.reward_std + model.reward_mean
        end = torch.sigmoid(out[:, -1] - math.log(model.end_weight))
        return Drawn(z + mean.gather(1, component).squeeze(1) + sigma * noise, reward, end)
