"""Actor and critic, learned in imagination.

The rollout builds no graph: the actor is trained by REINFORCE on what was imagined, for discrete and continuous
actions alike, so that one backward pass over actor and critic is all there is.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.layers import TwoHot, mlp
from wm.models.dreamer.rssm import State, choose, mixed
from wm.models.dreamer.world_model import WorldModel

DISCOUNT = 1 - 1 / 333
LAMBDA = 0.95
SLOW = 0.02  # of the critic that its slow copy takes over at every update
RANGE_SLOW = 0.01  # of a new range of returns that is taken over
LEAST_STD, MOST_STD = 0.1, 1.0  # of continuous actions


class Actor(nn.Module):
    """A distribution over encoded actions for features (..., F)."""

    def __init__(self, form: DreamerConfig) -> None:
        super().__init__()
        self.form = form
        self.layers = mlp(form.feature, form.units, form.layers, form.action * (1 if form.discrete else 2))

    def forward(self, features: Tensor) -> Tensor:
        """(..., A) log-probabilities, or (..., A, 2) means and deviations within [-1, 1]."""
        x = self.layers(features).float()
        if self.form.discrete:
            return mixed(x)
        mean, deviation = x.unflatten(-1, (self.form.action, 2)).unbind(-1)
        return torch.stack([mean.tanh(), LEAST_STD + (MOST_STD - LEAST_STD) * torch.sigmoid(deviation + 2)], -1)

    def draw(self, stats: Tensor, source: torch.Generator) -> Tensor:
        """An encoded action (..., A)."""
        if self.form.discrete:
            return functional.one_hot(choose(stats, source), self.form.action).float()
        mean, deviation = stats.unbind(-1)
        return mean + deviation * torch.randn(mean.shape, generator=source, device=mean.device)

    def best(self, stats: Tensor) -> Tensor:
        """The likeliest action."""
        if self.form.discrete:
            return functional.one_hot(stats.argmax(-1), self.form.action).float()
        return stats[..., 0]

    def score(self, stats: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of actions, and the entropy."""
        if self.form.discrete:
            return (stats * actions).sum(-1), -(stats.exp() * stats).sum(-1)
        normal = torch.distributions.Normal(stats[..., 0], stats[..., 1], validate_args=False)
        return normal.log_prob(actions).sum(-1), normal.entropy().sum(-1)


def lambda_returns(rewards: Tensor, going_on: Tensor, values: Tensor) -> Tensor:
    """(H, N) returns of steps 0..H-1. Along (H + 1, N), entry t tells of state t: the reward that came with it, the
    probability of going on from it, its value."""
    found = [values[-1]]
    for step in range(len(values) - 2, -1, -1):
        ahead = (1 - LAMBDA) * values[step + 1] + LAMBDA * found[-1]
        found.append(rewards[step + 1] + DISCOUNT * going_on[step + 1] * ahead)
    return torch.stack(found[:0:-1])


class ActorCritic(nn.Module):
    """Actor, critic, the critic's slow copy, and the range of returns."""

    low: Tensor
    high: Tensor

    def __init__(self, form: DreamerConfig) -> None:
        super().__init__()
        self.actor = Actor(form)
        self.critic, self.slow = (TwoHot(form.feature, form.units, form.layers, form.bins) for _ in range(2))
        self.slow.load_state_dict(self.critic.state_dict())
        self.slow.requires_grad_(False)
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))

    @torch.no_grad()
    def imagine(self, world: WorldModel, start: State, horizon: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features (H + 1, N, F) and actions (H, N, A) from states (N, ...)."""
        state, features, actions = start, [start.features], []
        for _ in range(horizon):
            action = self.actor.draw(self.actor(state.features), source)
            state = world.rssm.imagine(state, action, source)
            features.append(state.features)
            actions.append(action)
        return torch.stack(features), torch.stack(actions)

    def loss(
        self, world: WorldModel, start: State, terminal: Tensor, horizon: int, entropy: float, source: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of actor and critic from states (N, ...); `terminal` (N,) says where the episode was over."""
        features, actions = self.imagine(world, start, horizon, source)
        with torch.no_grad():
            rewards, going_on = world.outcome(features)
            going_on[0] = 1 - terminal
            values = self.critic.value(self.critic(features))
            returns = lambda_returns(rewards, going_on, values)
            weight = torch.cumprod(torch.cat([going_on[:1], DISCOUNT * going_on[1:-1]]), 0)
            scale = self._follow_range(returns)
            advantage = (returns - values[:-1]) / scale
            steady = self.slow.value(self.slow(features[:-1]))
        likelihood, uncertainty = self.actor.score(self.actor(features[:-1]), actions)
        actor = -(weight * (likelihood * advantage + entropy * uncertainty)).mean()
        told = self.critic(features[:-1])
        critic = (weight * (self.critic.loss(told, returns) + self.critic.loss(told, steady))).mean()
        figures = {
            "actor": actor.detach(),
            "critic": critic.detach(),
            "entropy": uncertainty.detach().mean(),
            "imagined_return": returns.mean(),
            "imagined_reward": rewards[1:].mean(),
            "value": values.mean(),
        }
        return actor + critic, figures

    def _follow_range(self, returns: Tensor) -> Tensor:
        """Between the 5th and the 95th percentile of returns, followed slowly; at least 1, so that small returns are
        not blown up to noise."""
        low, high = torch.quantile(returns.flatten()[: 1 << 24], torch.tensor([0.05, 0.95], device=returns.device))
        self.low.lerp_(low, RANGE_SLOW)
        self.high.lerp_(high, RANGE_SLOW)
        return (self.high - self.low).clamp(min=1)

    @torch.no_grad()
    def follow(self) -> None:
        """Move the slow critic a little towards the critic."""
        for slow, fast in zip(self.slow.parameters(), self.critic.parameters(), strict=True):
            slow.lerp_(fast, SLOW)
