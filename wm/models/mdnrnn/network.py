"""M: an LSTM that predicts the next latent as a mixture of Gaussians, the reward, and the end of the episode.

- Mixtures per latent dimension, as in the paper's code: 3 * K * Z outputs.
- It predicts the *mean* of the next latent, which C observes. Its input is a latent sampled by V during most of the
  training, so that it learns to filter noise, and the mean at the end, which C and dreams give it.
- The mixtures' means are offsets from the input: most latents hardly change, and persistence costs nothing.
- Log-likelihoods by logsumexp in float32; log sigma is clamped, or a dead latent would drive it to minus infinity.
- Rewards are standardised by constants of the data, kept in buffers.
- The end head's loss weighs rare ends more; `end_probability` divides the weight out, so that it is calibrated.
Shapes: B batch, L steps, Z latents, A encoded action width, K mixtures, H hidden.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.mdnrnn.mixture_nll import LOG_SIGMA, PIECE, MixtureNll
from wm.models.mdnrnn.predictor import OneStep, Part, Predictor, State


class Prediction(NamedTuple):
    """M's prediction of the next step. logits, mean, log_sigma (..., Z, K); reward, end_logit (...)."""

    logits: Tensor
    mean: Tensor
    log_sigma: Tensor
    reward: Tensor
    end_logit: Tensor


class MdnRnnLoss(NamedTuple):
    """Means over steps that exist: `total`; `nll` per latent dimension; squared error of the standardised `reward`;
    cross-entropy of the `end`."""

    total: Tensor
    nll: Tensor
    reward: Tensor
    end: Tensor


class MdnRnn(Predictor):
    """The paper's M. The recurrent state (h, c), each (B, H), is a value that is passed in and returned."""

    reward_mean: Tensor
    reward_std: Tensor

    def __init__(self, latent: int, action: int, hidden: int, mixtures: int, end_weight: float) -> None:
        super().__init__()
        self.latent, self.action, self.hidden, self.mixtures = latent, action, hidden, mixtures
        self.end_weight = end_weight
        self.lstm = nn.LSTM(latent + action, hidden, batch_first=True)
        self.heads = nn.Linear(hidden, 3 * latent * mixtures + 2)
        self.register_buffer("reward_mean", torch.zeros(()))
        self.register_buffer("reward_std", torch.ones(()))

    def initial_state(self, batch: int, device: torch.device | str = "cpu") -> State:
        """The state before the first step."""
        return torch.zeros(batch, self.hidden, device=device), torch.zeros(batch, self.hidden, device=device)

    def hidden_bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """As Predictor: an LSTM's outputs are within 1."""
        return -torch.ones(self.hidden), torch.ones(self.hidden)

    def predict(self, z: Tensor, h: Tensor) -> Prediction:
        """The prediction after latent z (..., Z) with the hidden state h (..., H) after it."""
        # In float32 from here on: exponentials of bf16 numbers are wrong by percents.
        out = self.heads(h).float()
        mixture, reward, end = out.split([3 * self.latent * self.mixtures, 1, 1], dim=-1)
        logits, mean, log_sigma = mixture.unflatten(-1, (3, self.latent, self.mixtures)).unbind(-3)
        return Prediction(
            logits - torch.logsumexp(logits, -1, keepdim=True),  # log_softmax is slow where there are few
            z.float()[..., None] + mean,
            log_sigma.clamp(*LOG_SIGMA),
            reward.squeeze(-1) * self.reward_std + self.reward_mean,
            end.squeeze(-1),
        )

    def forward(self, z: Tensor, action: Tensor) -> Prediction:
        """Predictions for every step of sequences: z (B, L, Z), action (B, L, A)."""
        return self.predict(z, self.hidden_states(z, action))

    def hidden_states(self, z: Tensor, action: Tensor) -> Tensor:
        """h (B, L, H) after every step of sequences from their start: z (B, L, Z), action (B, L, A)."""
        h: Tensor = self.lstm(torch.cat([z, action], -1))[0]
        return h

    def one_step(self, z: Tensor, action: Tensor, following: Tensor) -> OneStep:
        """Predictions of the latents `following` z (B, L, Z) along sequences from their start."""
        hidden = self.hidden_states(z, action)
        prediction = self.predict(z, hidden)
        nll = -log_likelihood(prediction, following).mean(-1)
        return OneStep(expected(prediction), nll, prediction.reward, self.end_probability(prediction), hidden)

    def component_order(self) -> Tensor:
        """The order of the heads' outputs in which each component's latents are contiguous; reward and end stay
        last."""
        order = torch.arange(self.heads.out_features, device=self.heads.weight.device)
        components = order[:-2].view(3, self.latent, self.mixtures).transpose(1, 2).flatten()
        return torch.cat([components, order[-2:]])

    def end_probability(self, prediction: Prediction) -> Tensor:
        """Calibrated probability that the episode ends with this step."""
        return torch.sigmoid(prediction.end_logit - math.log(self.end_weight))

    def loss(
        self,
        z: Tensor,
        action: Tensor,
        target: Tensor,
        rewards: Tensor,
        ends: Tensor,
        mask: Tensor,
        part: Part | None = None,
    ) -> MdnRnnLoss:
        """z, target (B, L, Z); action (B, L, A); rewards, ends, mask (B, L). Of a `part` of a batch, its share."""
        h, _ = self.lstm(torch.cat([z, action], -1))
        # 1 where a piece of a batch has no step, whose sum is zero anyway.
        count = (mask if part is None else part.steps).sum().clamp(min=1)
        nll, predicted, end_logit = self._head_losses(h, (target - z).float(), mask / (count * self.latent))
        standardised = (rewards - self.reward_mean) / self.reward_std
        reward = ((predicted - standardised).square() * mask).sum() / count
        weight = torch.full_like(count, self.end_weight)
        end = functional.binary_cross_entropy_with_logits(end_logit, ends, mask, pos_weight=weight, reduction="sum")
        return MdnRnnLoss(nll + reward + end / count, nll, reward, end / count)

    def _head_losses(self, h: Tensor, offset: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For h (B, L, H): the weighted NLL of the latents' offsets (B, L, Z), the standardised reward and the end's
        logit, (B, L) each. A piece at a time, latents and components first, so that all of it is in cache."""
        count = 3 * self.latent * self.mixtures
        order = self.component_order()
        matrix, bias = self.heads.weight[order], self.heads.bias[order, None]
        size = PIECE if h.device.type == "cpu" else weight.numel()
        nll, rest = torch.zeros((), device=h.device), []
        pieces = (part.flatten(0, 1).split(size) for part in (h, offset, weight[..., None]))
        for states, offsets, weights in zip(*pieces, strict=True):
            out = functional.linear(matrix, states) + bias
            mixture = out[:count].unflatten(0, (3, self.mixtures, self.latent))
            nll = nll + MixtureNll.apply(mixture, offsets.T, weights[:, 0])  # type: ignore[no-untyped-call]
            rest.append(out[count:].float())
        reward, end = torch.cat(rest, 1).view(2, *weight.shape)
        return nll, reward, end


def log_likelihood(prediction: Prediction, z: Tensor) -> Tensor:
    """log p(z) per latent dimension, (..., Z)."""
    standard = (z[..., None] - prediction.mean) * torch.exp(-prediction.log_sigma)
    each = torch.addcmul(prediction.logits - prediction.log_sigma, standard, standard, value=-0.5)
    return torch.logsumexp(each, -1) - 0.5 * math.log(2 * math.pi)


def expected(prediction: Prediction) -> Tensor:
    """The mean of the mixture, (..., Z)."""
    return (prediction.logits.exp() * prediction.mean).sum(-1)
