"""Actor and critic, trained in imagination.

Imagined trajectories build no graph: the actor is trained by REINFORCE on them, for discrete and continuous actions
alike, so that one backward pass over actor and critic suffices.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.layers import mlp, two_hot_head
from wm.models.dreamer.rssm import State, sample_categories, unimix
from wm.models.dreamer.world_model import WorldModel

# DreamerV3's values.
DISCOUNT = 1 - 1 / 333
# Both are DreamerV3's: a horizon of 333 steps, and returns that are bootstrapped after about 20.
LAMBDA = 0.95
SLOW_CRITIC_RATE = 0.02  # of the slow critic's moving average, an update
RETURN_RANGE_RATE = 0.01  # of the return range's moving average, an update
MIN_STD, MAX_STD = 0.1, 1.0  # of continuous actions
QUANTILE_LIMIT = 1 << 24  # elements that torch.quantile accepts


class Actor(nn.Module):
    """A distribution over encoded actions for features (..., F)."""

    def __init__(self, config: DreamerConfig) -> None:
        super().__init__()
        self.config = config
        outputs = config.action * (1 if config.discrete else 2)
        self.layers = mlp(config.feature_width, config.units, config.layers, outputs)

    def forward(self, features: Tensor) -> Tensor:
        """(..., A) log-probabilities, or (..., A, 2) means and standard deviations within [-1, 1]."""
        x = self.layers(features).float()
        if self.config.discrete:
            return unimix(x)
        mean, std = x.unflatten(-1, (self.config.action, 2)).unbind(-1)
        return torch.stack([mean.tanh(), MIN_STD + (MAX_STD - MIN_STD) * torch.sigmoid(std + 2)], -1)

    def sample(self, distribution: Tensor, noise: torch.Generator) -> Tensor:
        """Encoded actions (..., A)."""
        if self.config.discrete:
            return functional.one_hot(sample_categories(distribution, noise), self.config.action).float()
        mean, std = distribution.unbind(-1)
        return mean + std * torch.randn(mean.shape, generator=noise, device=mean.device)

    def mode(self, distribution: Tensor) -> Tensor:
        """The most probable actions."""
        if self.config.discrete:
            return functional.one_hot(distribution.argmax(-1), self.config.action).float()
        return distribution[..., 0]

    def evaluate(self, distribution: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of actions, and the entropy."""
        if self.config.discrete:
            return (distribution * actions).sum(-1), -(distribution.exp() * distribution).sum(-1)
        normal = torch.distributions.Normal(distribution[..., 0], distribution[..., 1], validate_args=False)
        return normal.log_prob(actions).sum(-1), normal.entropy().sum(-1)


def lambda_returns(rewards: Tensor, continues: Tensor, values: Tensor) -> Tensor:
    """(H, N) returns of steps 0..H-1 from (H + 1, N): entry t is the reward on arriving in state t, the probability
    that the episode continues from it, and its value."""
    returns = [values[-1]]
    for step in range(len(values) - 2, -1, -1):
        bootstrap = (1 - LAMBDA) * values[step + 1] + LAMBDA * returns[-1]
        returns.append(rewards[step + 1] + DISCOUNT * continues[step + 1] * bootstrap)
    return torch.stack(returns[:0:-1])


class ActorCritic(nn.Module):
    """Actor, critic, the slow critic (a moving average of the critic), and the running range of returns."""

    return_low: Tensor
    return_high: Tensor
    quantiles: Tensor

    def __init__(self, config: DreamerConfig) -> None:
        super().__init__()
        self.actor = Actor(config)
        self.critic, self.slow_critic = (two_hot_head(config) for _ in range(2))
        self.slow_critic.load_state_dict(self.critic.state_dict())
        self.slow_critic.requires_grad_(False)
        self.register_buffer("return_low", torch.zeros(()))
        self.register_buffer("return_high", torch.zeros(()))
        # On the device beforehand: a CUDA graph copies nothing from the host.
        self.register_buffer("quantiles", torch.tensor([0.05, 0.95]), persistent=False)

    @torch.no_grad()
    def imagine(self, world: WorldModel, start: State, horizon: int, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features (H + 1, N, F) and actions (H, N, A) from states (N, ...)."""
        state, features, actions = start, [start.features], []
        for _ in range(horizon):
            action = self.actor.sample(self.actor(state.features), noise)
            state = world.rssm.imagine_step(state, action, noise)
            features.append(state.features)
            actions.append(action)
        return torch.stack(features), torch.stack(actions)

    def loss(
        self, world: WorldModel, start: State, terminal: Tensor, horizon: int, entropy: float, noise: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of actor and critic from states (N, ...); `terminal` (N,) marks states where the episode ended."""
        features, actions = self.imagine(world, start, horizon, noise)
        # No graph through the world model: it has a loss of its own, and REINFORCE needs none.
        with torch.no_grad():
            rewards, continues = world.predict(features)
            continues[0] = 1 - terminal
            values = self.critic.mean(self.critic(features))
            returns = lambda_returns(rewards, continues, values)
            weight = torch.cumprod(torch.cat([continues[:1], DISCOUNT * continues[1:-1]]), 0)
            advantage = (returns - values[:-1]) / self._return_scale(returns)
            slow_value = self.slow_critic.mean(self.slow_critic(features[:-1]))
        log_prob, policy_entropy = self.actor.evaluate(self.actor(features[:-1]), actions)
        actor_loss = -(weight * (log_prob * advantage + entropy * policy_entropy)).mean()
        predicted = self.critic(features[:-1])
        critic_loss = (weight * (self.critic.loss(predicted, returns) + self.critic.loss(predicted, slow_value))).mean()
        metrics = {
            "actor": actor_loss.detach(),
            "critic": critic_loss.detach(),
            "entropy": policy_entropy.detach().mean(),
            "imagined_return": returns.mean(),
            "imagined_reward": rewards[1:].mean(),
            "value": values.mean(),
        }
        return actor_loss + critic_loss, metrics

    def _return_scale(self, returns: Tensor) -> Tensor:
        """The moving average of the 5-95 % range of returns; at least 1, so that small returns are not amplified into
        noise."""
        low, high = torch.quantile(returns.flatten()[:QUANTILE_LIMIT], self.quantiles)
        self.return_low.lerp_(low, RETURN_RANGE_RATE)
        self.return_high.lerp_(high, RETURN_RANGE_RATE)
        return (self.return_high - self.return_low).clamp(min=1)

    @torch.no_grad()
    def update_slow_critic(self) -> None:
        """Move the slow critic's average by one update."""
        for slow, parameter in zip(self.slow_critic.parameters(), self.critic.parameters(), strict=True):
            slow.lerp_(parameter, SLOW_CRITIC_RATE)
