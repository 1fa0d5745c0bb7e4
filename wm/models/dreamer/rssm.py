"""The recurrent state-space model: what is carried on, what is guessed, and what is learned from seeing.

h = GRU(h, z, a)          carried on
z ~ p(z | h)              the prior: what is guessed without looking
z ~ q(z | h, frame)       the posterior: what a frame makes of it
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.layers import EPS, dense

UNIMIX = 0.01  # of a uniform distribution, so that no category's log-probability runs away
LEAST_STD = 0.1  # of Gaussian latents


class State(NamedTuple):
    """A value: h (..., D) and a sample of z (..., S * K)."""

    deter: Tensor
    stoch: Tensor

    @property
    def features(self) -> Tensor:
        """What the heads see."""
        return torch.cat([self.deter, self.stoch], -1)

    def detach(self) -> "State":
        """The same without its history."""
        return State(self.deter.detach(), self.stoch.detach())


class NormGru(nn.Module):
    """A GRU whose three gates are one normalised matrix product; the update is biased towards keeping."""

    def __init__(self, inputs: int, deter: int) -> None:
        super().__init__()
        self.gates = nn.Sequential(nn.Linear(inputs + deter, 3 * deter, bias=False), nn.LayerNorm(3 * deter, EPS))

    def forward(self, x: Tensor, deter: Tensor) -> Tensor:
        reset, candidate, update = self.gates(torch.cat([x, deter], -1)).chunk(3, -1)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        update = torch.sigmoid(update - 1)
        return update * candidate + (1 - update) * deter


class Rssm(nn.Module):
    """Distributions over z are told as `stats`: (..., S, K) log-probabilities, or (..., S, 2) mean and deviation."""

    def __init__(self, form: DreamerConfig, embed: int) -> None:
        super().__init__()
        self.form = form
        width = form.stoch * (form.classes or 2)
        self.enter = dense(form.sample + form.action, form.hidden)
        self.core = NormGru(form.hidden, form.deter)
        self.guess = nn.Sequential(dense(form.deter, form.hidden), nn.Linear(form.hidden, width))
        # The two halves of one layer: a frame's share of it is computed for all steps at once.
        self.from_deter = nn.Linear(form.deter, form.hidden, bias=False)
        self.from_frame = nn.Linear(embed, form.hidden, bias=False)
        self.seen = nn.Sequential(nn.LayerNorm(form.hidden, EPS), nn.SiLU(), nn.Linear(form.hidden, width))
        self.start = nn.Parameter(torch.zeros(form.deter))

    def initial(self, count: int) -> State:
        """(count, ...) the state before anything was seen: a learned h and the likeliest z it guesses."""
        deter = torch.tanh(self.start).expand(count, -1)
        return State(deter, self._likeliest(self.prior(deter)))

    def prior(self, deter: Tensor) -> Tensor:
        """Stats of p(z | h)."""
        return self._stats(self.guess(deter))

    def posterior(self, deter: Tensor, embed: Tensor) -> Tensor:
        """Stats of q(z | h, frame); `embed` is the encoder's code."""
        return self._stats(self.seen(self.from_deter(deter) + self.from_frame(embed)))

    def carry(self, state: State, action: Tensor) -> Tensor:
        """The next h."""
        deter: Tensor = self.core(self.enter(torch.cat([state.stoch, action], -1)), state.deter)
        return deter

    def imagine(self, state: State, action: Tensor, source: torch.Generator) -> State:
        """The next state, guessed."""
        deter = self.carry(state, action)
        return State(deter, self.draw(self.prior(deter), source))

    def look(self, state: State, action: Tensor, first: Tensor, embed: Tensor, source: torch.Generator | None) -> State:
        """The next state (N, ...), seen. Where an episode is at its first frame, what came before is forgotten."""
        state, action = self.forget(state, action, first, self.initial(len(first)))
        deter = self.carry(state, action)
        return State(deter, self.draw(self.posterior(deter, embed), source))

    def observe(
        self, embeds: Tensor, actions: Tensor, first: Tensor, source: torch.Generator
    ) -> tuple[State, Tensor, Tensor]:
        """States along (B, T) frames, with the stats of posterior and prior. `actions[:, t]` led to frame t."""
        begin = state = self.initial(len(first))
        shares = self.from_frame(embeds)
        deters, stochs, stats = [], [], []
        for step in range(embeds.shape[1]):
            state, action = self.forget(state, actions[:, step], first[:, step], begin)
            deter = self.carry(state, action)
            told = self._stats(self.seen(self.from_deter(deter) + shares[:, step]))
            state = State(deter, self.draw(told, source))
            deters.append(state.deter)
            stochs.append(state.stoch)
            stats.append(told)
        states = State(torch.stack(deters, 1), torch.stack(stochs, 1))
        return states, torch.stack(stats, 1), self.prior(states.deter)

    @staticmethod
    def forget(state: State, action: Tensor, first: Tensor, begin: State) -> tuple[State, Tensor]:
        """`begin` and no action where an episode begins."""
        new = first.unsqueeze(-1).bool()
        state = State(torch.where(new, begin.deter, state.deter), torch.where(new, begin.stoch, state.stoch))
        return state, torch.where(new, torch.zeros_like(action), action)

    def draw(self, stats: Tensor, source: torch.Generator | None) -> Tensor:
        """A sample (..., S * K), the likeliest one without a source of chance; gradients pass straight through a
        category's one-hot to its probabilities."""
        if source is None:
            return self._likeliest(stats)
        if not self.form.classes:
            mean, deviation = stats.unbind(-1)
            return mean + deviation * torch.randn(mean.shape, generator=source, device=mean.device)
        place = choose(stats, source)
        chances = stats.exp()
        sample = functional.one_hot(place, self.form.classes).to(chances.dtype)
        return (sample + chances - chances.detach()).flatten(-2)

    def divergence(self, stats: Tensor, other: Tensor) -> Tensor:
        """KL(stats || other) in nats, summed over the latents."""
        if self.form.classes:
            return (stats.exp() * (stats - other)).sum((-1, -2))
        (mean, deviation), (mean2, deviation2) = stats.unbind(-1), other.unbind(-1)
        ratio = (deviation / deviation2).square()
        return 0.5 * (((mean - mean2) / deviation2).square() + ratio - 1 - ratio.log()).sum(-1)

    def _stats(self, x: Tensor) -> Tensor:
        x = x.float().unflatten(-1, (self.form.stoch, -1))
        if not self.form.classes:
            mean, deviation = x.unbind(-1)
            return torch.stack([mean, functional.softplus(deviation) + LEAST_STD], -1)
        return mixed(x)

    def _likeliest(self, stats: Tensor) -> Tensor:
        if not self.form.classes:
            return stats[..., 0]
        return functional.one_hot(stats.argmax(-1), self.form.classes).to(stats.dtype).flatten(-2)


def mixed(logits: Tensor) -> Tensor:
    """Log-probabilities with `UNIMIX` of a uniform distribution mixed in."""
    return torch.log((1 - UNIMIX) * functional.softmax(logits, -1) + UNIMIX / logits.shape[-1])


def choose(logs: Tensor, source: torch.Generator) -> Tensor:
    """One category of each distribution, by inversion: a random number for each, not one for each category."""
    reached = logs.detach().exp().cumsum(-1)
    drawn = torch.rand(logs.shape[:-1], generator=source, device=logs.device).unsqueeze(-1)
    return (reached[..., :-1] < drawn * reached[..., -1:]).sum(-1)
