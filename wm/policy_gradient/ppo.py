"""Proximal policy optimization (Schulman et al. 2017) on a batch of steps, wherever they were played.

Shapes: T steps of N places, F inputs of C.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wm.models.action_distributions import ActionDistribution
from wm.policy_gradient.network import ActorCritic

# LAMBDA, CLIP, VALUE_WEIGHT and GRADIENT_NORM are the defaults of OpenAI's ppo2; none was compared here.
LAMBDA = 0.95  # of the advantages' exponential average
CLIP = 0.2  # of the ratio of probabilities
VALUE_WEIGHT = 0.5  # of the value's loss, beside the policy's
GRADIENT_NORM = 0.5  # above which gradients are scaled down
ADAM_EPSILON = 1e-5  # that of OpenAI's PPO; torch's is 1e-8
LEAST_SCALE = 1e-3  # of rewards that hardly occur


@dataclass(frozen=True)
class Passes:
    """How a rollout is learned from: `epochs` over all of its rows, in gradient steps of `minibatch` rows."""

    epochs: int
    minibatch: int

    def with_minibatch(self, rows: int | None) -> "Passes":
        """The same with so many rows in a gradient step; None: with as many as before."""
        return self if rows is None else replace(self, minibatch=rows)


@dataclass(frozen=True)
class Rollout:
    """Steps of a policy: its inputs `features` (T, N, F), `choices` with their `log_probs` (T, N), `rewards` (T, N).

    `discounts` (T, N) are 0 where an episode ended, 1 elsewhere; in a dream, the probability that it went on. `own`
    (T, N) says where the choice was played. Where a place was `cut` (T, N) - truncated, or at the last step - the
    value of `successors` (K, F) stands for what would have followed, in the order of the steps and then the places.
    """

    features: Tensor
    choices: Tensor
    log_probs: Tensor
    rewards: Tensor
    discounts: Tensor
    own: Tensor
    cut: Tensor
    successors: Tensor


def advantages(rollout: Rollout, rewards: Tensor, values: Tensor, following: Tensor, gamma: float) -> Tensor:
    """Generalized advantages (T, N) for scaled rewards and values (T, N); `following` (K,) are the values of the
    successors."""
    next_values = torch.cat([values[1:], torch.zeros_like(values[:1])])
    next_values[rollout.cut] = following
    discounts, goes_on = gamma * rollout.discounts, (~rollout.cut).float()
    deltas = rewards + discounts * next_values - values
    result, carried = torch.empty_like(deltas), torch.zeros_like(deltas[0])
    for step in reversed(range(len(deltas))):
        carried = deltas[step] + LAMBDA * discounts[step] * goes_on[step] * carried
        result[step] = carried
    return result


@dataclass
class RewardScale:
    """The standard deviation of discounted returns so far, by which rewards are divided. `running` (N,) are the returns
    of the places' episodes up to now."""

    count: float
    mean: float
    squares: float
    running: list[float]

    @classmethod
    def of(cls, places: int) -> "RewardScale":
        """Nothing seen yet."""
        return cls(0.0, 0.0, 0.0, [0.0] * places)

    def update(self, rewards: Tensor, ends: Tensor, gamma: float) -> float:
        """Add rewards (T, N), where episodes end as in `ends` (T, N). Returns the deviation."""
        running, returns = np.array(self.running), np.empty(rewards.shape)
        for step, (reward, end) in enumerate(zip(rewards.numpy(), ends.numpy(), strict=True)):
            running = running * gamma + reward
            returns[step] = running
            running = np.where(end, 0.0, running)
        self.running = running.tolist()
        total, shift = self.count + returns.size, returns.mean() - self.mean
        self.squares += float(returns.var() * returns.size + shift**2 * self.count * returns.size / total)
        self.mean += float(shift * returns.size / total)
        self.count = float(total)
        # A running variance of returns, as in OpenAI's VecNormalize.
        return max((self.squares / self.count) ** 0.5, LEAST_SCALE)


def make_optimizer(network: ActorCritic, learning_rate: float) -> torch.optim.Optimizer:
    """Adam for actor and critic."""
    return torch.optim.Adam(network.parameters(), learning_rate, eps=ADAM_EPSILON, fused=True)


def losses(
    distribution: ActionDistribution, outputs: Tensor, values: Tensor, batch: dict[str, Tensor], entropy_weight: float
) -> tuple[Tensor, Tensor]:
    """The loss of a minibatch and the mean entropy. Rows whose choice was not played (`own` is 0) have a value's loss
    alone."""
    own, advantage = batch["own"], batch["advantages"]
    # 1 where no choice of the minibatch was played: its loss is zero then.
    count = own.sum().clamp(min=1)
    mean = (advantage * own).sum() / count
    deviation = (((advantage - mean).square() * own).sum() / (count - 1).clamp(min=1)).sqrt()
    # Not 1e-8: a minibatch whose advantages are nearly equal would otherwise be blown up to noise.
    advantage = (advantage - mean) / (deviation + 1e-4)
    ratio = (distribution.log_prob(outputs, batch["choices"]) - batch["log_probs"]).exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    entropy = (distribution.entropy(outputs) * own).sum() / count
    value_loss = (values - batch["targets"]).square().mean()
    return -(gain * own).sum() / count - entropy_weight * entropy + VALUE_WEIGHT * value_loss, entropy


def update(
    network: ActorCritic,
    optimizer: torch.optim.Optimizer,
    distribution: ActionDistribution,
    rollout: Rollout,
    rewards: Tensor,
    gamma: float,
    entropy_weight: float,
    passes: Passes,
    random: np.random.Generator,
) -> dict[str, float]:
    """Improve the network by the steps of a rollout with scaled rewards (T, N). `random` shuffles the rows. Returns
    figures of the update."""
    before = network.values(rollout.features.flatten(0, 1)).view_as(rewards)
    advantage = advantages(rollout, rewards, before, network.values(rollout.successors), gamma)
    batch = {
        "features": rollout.features.flatten(0, 1),
        "choices": rollout.choices.flatten(0, 1),
        "log_probs": rollout.log_probs.flatten(),
        "own": rollout.own.flatten().float(),
        "advantages": advantage.flatten(),
        "targets": (advantage + before).flatten(),
    }
    entropies: list[Any] = []
    for _ in range(passes.epochs):
        for rows in torch.from_numpy(random.permutation(rewards.numel())).split(passes.minibatch):
            part = {name: value.index_select(0, rows) for name, value in batch.items()}
            outputs, values = network(part["features"])
            loss, entropy = losses(distribution, outputs, values, part, entropy_weight)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_NORM)
            optimizer.step()
            # Detached, or the graphs of all minibatches would stay in memory.
            entropies.append(entropy.detach())
    return {"entropy": float(torch.stack(entropies).mean())}
