"""The recurrent state-space model (RSSM): a deterministic recurrent state h and categorical latents z.

h = GRU(h, z, a)          the recurrent step
z ~ p(z | h)              the prior: the prediction without a frame
z ~ q(z | h, frame)       the posterior: given a frame
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.layers import EPS, dense

UNIMIX = 0.01  # share of a uniform distribution, so that no category's log-probability diverges


class State(NamedTuple):
    """A value: h (..., D) and a sample of z (..., S * K)."""

    deter: Tensor
    stoch: Tensor

    @property
    def features(self) -> Tensor:
        """Input of the heads."""
        return torch.cat([self.deter, self.stoch], -1)

    def detach(self) -> "State":
        """The same without its graph."""
        return State(self.deter.detach(), self.stoch.detach())


class NormGru(nn.Module):
    """A GRU whose three gates are one normalised matrix product; its update gate is biased towards keeping h."""

    def __init__(self, inputs: int, deter: int) -> None:
        super().__init__()
        self.gates = nn.Sequential(nn.Linear(inputs + deter, 3 * deter, bias=False), nn.LayerNorm(3 * deter, EPS))

    def forward(self, x: Tensor, deter: Tensor) -> Tensor:
        reset, candidate, update = self.gates(torch.cat([x, deter], -1)).chunk(3, -1)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        # DreamerV3's: a bias of -1 lets the state change slowly at first.
        update = torch.sigmoid(update - 1)
        return update * candidate + (1 - update) * deter


class Rssm(nn.Module):
    """Distributions over z are (..., S, K) log-probabilities."""

    def __init__(self, config: DreamerConfig, embed: int) -> None:
        super().__init__()
        self.config = config
        self.input = dense(config.latent_width + config.action, config.hidden)
        self.gru = NormGru(config.hidden, config.deter)
        self.prior_head = nn.Sequential(
            dense(config.deter, config.hidden), nn.Linear(config.hidden, config.latent_width)
        )
        # The two halves of one linear layer: the frames' half is computed for all steps at once.
        self.from_deter = nn.Linear(config.deter, config.hidden, bias=False)
        self.from_frame = nn.Linear(embed, config.hidden, bias=False)
        self.posterior_head = nn.Sequential(
            nn.LayerNorm(config.hidden, EPS), nn.SiLU(), nn.Linear(config.hidden, config.latent_width)
        )
        self.initial_deter = nn.Parameter(torch.zeros(config.deter))

    def initial(self, count: int) -> State:
        """(count, ...) the state before the first frame: a learned h and the mode of its prior."""
        deter = torch.tanh(self.initial_deter).expand(count, -1)
        return State(deter, self._mode(self.prior(deter)))

    def prior(self, deter: Tensor) -> Tensor:
        """Log-probabilities of p(z | h)."""
        return self._log_probs(self.prior_head(deter))

    def posterior(self, deter: Tensor, embed: Tensor) -> Tensor:
        """Log-probabilities of q(z | h, frame); `embed` is the encoder's output."""
        return self._log_probs(self.posterior_head(self.from_deter(deter) + self.from_frame(embed)))

    def step(self, state: State, action: Tensor) -> Tensor:
        """The next h. Of an action beyond its bounds the bound counts, as in the environment and in the replay: a
        continuous actor's samples have none."""
        deter: Tensor = self.gru(self.input(torch.cat([state.stoch, action.clamp(-1, 1)], -1)), state.deter)
        return deter

    def imagine_step(self, state: State, action: Tensor, noise: torch.Generator) -> State:
        """The next state, sampled from the prior."""
        deter = self.step(state, action)
        return State(deter, self.sample(self.prior(deter), noise))

    def observe_step(
        self, state: State, action: Tensor, first: Tensor, embed: Tensor, noise: torch.Generator | None
    ) -> State:
        """The next state (N, ...) given a frame; where `first` marks an episode's first frame, the state is reset."""
        state, action = self.reset(state, action, first, self.initial(len(first)))
        deter = self.step(state, action)
        return State(deter, self.sample(self.posterior(deter, embed), noise))

    def observe(
        self, embeds: Tensor, actions: Tensor, first: Tensor, noise: torch.Generator
    ) -> tuple[State, Tensor, Tensor]:
        """States along (B, T) frames, with log-probabilities of posterior and prior. `actions[:, t]` led to frame t."""
        initial = state = self.initial(len(first))
        from_frames = self.from_frame(embeds)
        deters, stochs, posteriors = [], [], []
        for step in range(embeds.shape[1]):
            state, action = self.reset(state, actions[:, step], first[:, step], initial)
            deter = self.step(state, action)
            posterior = self._log_probs(self.posterior_head(self.from_deter(deter) + from_frames[:, step]))
            state = State(deter, self.sample(posterior, noise))
            deters.append(state.deter)
            stochs.append(state.stoch)
            posteriors.append(posterior)
        states = State(torch.stack(deters, 1), torch.stack(stochs, 1))
        return states, torch.stack(posteriors, 1), self.prior(states.deter)

    @staticmethod
    def reset(state: State, action: Tensor, first: Tensor, initial: State) -> tuple[State, Tensor]:
        """State and action, replaced by `initial` and zeros where `first` marks an episode's first frame."""
        new = first.unsqueeze(-1).bool()
        state = State(torch.where(new, initial.deter, state.deter), torch.where(new, initial.stoch, state.stoch))
        return state, torch.where(new, torch.zeros_like(action), action)

    def sample(self, log_probs: Tensor, noise: torch.Generator | None) -> Tensor:
        """One-hot samples (..., S * K) with straight-through gradients; the mode without `noise`."""
        if noise is None:
            return self._mode(log_probs)
        categories = sample_categories(log_probs, noise)
        probs = log_probs.exp()
        sample = functional.one_hot(categories, self.config.classes).to(probs.dtype)
        # Straight-through: forward the sample, backward the gradient of the probabilities.
        return (sample + probs - probs.detach()).flatten(-2)

    @staticmethod
    def kl(log_probs: Tensor, other: Tensor) -> Tensor:
        """KL(log_probs || other) in nats, summed over the latents."""
        return (log_probs.exp() * (log_probs - other)).sum((-1, -2))

    def _log_probs(self, logits: Tensor) -> Tensor:
        return unimix(logits.float().unflatten(-1, (self.config.stoch, -1)))

    def _mode(self, log_probs: Tensor) -> Tensor:
        return functional.one_hot(log_probs.argmax(-1), self.config.classes).to(log_probs.dtype).flatten(-2)


def unimix(logits: Tensor) -> Tensor:
    """Log-probabilities with `UNIMIX` of a uniform distribution mixed in."""
    return torch.log((1 - UNIMIX) * functional.softmax(logits, -1) + UNIMIX / logits.shape[-1])


def sample_categories(log_probs: Tensor, noise: torch.Generator) -> Tensor:
    """One category of each distribution, by inversion: one random number a distribution, not one a category."""
    # A sample has no gradient; `loss` adds it by the straight-through term.
    cumulative = log_probs.detach().exp().cumsum(-1)
    uniform = torch.rand(log_probs.shape[:-1], generator=noise, device=log_probs.device).unsqueeze(-1)
    # Scaled by the last sum, which rounding may leave below 1.
    return (cumulative[..., :-1] < uniform * cumulative[..., -1:]).sum(-1)
