"""M trained on its own rollouts: a network that predicts the difference to the next latent, many steps in a row.

- After a warm-up on real latents it is given its own predictions, and the loss is taken over all of them: what an error
  costs later is part of it. A mixture trained on real latents alone (`network.py`) improves its likelihood long after
  its rollouts have stopped to improve.
- Latents are standardised, and differences measured in their own standard deviations.
- The input is noised by a share of V's deviation, because its own predictions are not exact either.
- Reward and end are functions of a transition (z, difference, next difference, action), and nothing flows back into the
  prediction of latents: the gradient of their losses doubles the error of latents.
- Half of the windows train the end on rollouts: latents drift there, and an end that knows real transitions alone
  dreams six times too many (Pong). Rewards are trained on real transitions: on rollouts they become a smear. With
  `dreamt_rewards` half of the windows train them on rollouts too: a lost ball that fades in the dream costs nothing
  else, and C learns to lose so (Pong).
- A step that ends the episode has a reward of its own, and the mean is over both by the end's probability: a crash that
  is dreamt half is paid half. One reward for all steps paid a third of LunarLander's crashes.
- With `hidden` LSTM units h is their output. Without any, M sees the last three latents and two actions, and h is the
  input of the step before.
Shapes: B windows, L = W + K steps (W of them warm-up), Z latents, A encoded action width, H hidden.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.mdnrnn.predictor import OneStep, Part, Predictor, State
from wm.models.two_hot import TwoHot

OUTCOME_UNITS = 128  # of the reward and end heads
REWARD_BINS, REWARD_LIMIT = 49, 6.0  # symlog of rewards up to 400 times the usual one


class RolloutLoss(NamedTuple):
    """Means over steps that exist: `total`; Huber losses of the standardised latents along the rollout and in the
    warm-up; cross-entropies of `reward` and `end`."""

    total: Tensor
    rollout: Tensor
    warm_up: Tensor
    reward: Tensor
    end: Tensor


class RolloutNetwork(Predictor):
    """M. Its state: h (B, H), the cell c (B, H or 0), the standardised latent of the step before (B, Z), and whether
    there was one (B, 1)."""

    z_mean: Tensor
    z_std: Tensor
    difference_std: Tensor
    residual_std: Tensor
    reward_unit: Tensor

    def __init__(self, latent: int, action: int, hidden: int, units: int) -> None:
        super().__init__()
        inputs = 2 * latent + action
        self.latent, self.action, self.hidden = latent, action, hidden or inputs
        self.lstm = nn.LSTM(inputs, hidden, batch_first=True) if hidden else None
        self.change = _mlp(inputs + (hidden or latent + action), units, latent)
        rewards = _mlp(3 * latent + action, OUTCOME_UNITS, 2 * REWARD_BINS)
        self.reward = TwoHot(rewards.append(nn.Unflatten(-1, (2, REWARD_BINS))), REWARD_BINS, REWARD_LIMIT)
        self.end = _mlp(3 * latent + action, OUTCOME_UNITS, 1)
        # Ones until the data is measured.
        for name in ("z_std", "difference_std", "residual_std"):
            self.register_buffer(name, torch.ones(latent))
        self.register_buffer("z_mean", torch.zeros(latent))
        self.register_buffer("reward_unit", torch.ones(()))

    def initial_state(self, batch: int, device: torch.device | str = "cpu") -> State:
        """The state before the first step."""
        cell = self.hidden if self.lstm is not None else 0
        return tuple(torch.zeros(batch, width, device=device) for width in (self.hidden, cell, self.latent, 1))

    def hidden_bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """As Predictor: an LSTM's outputs are within 1; without one h is a step's inputs, whose actions are within
        1."""
        if self.lstm is not None:
            return -torch.ones(self.hidden), torch.ones(self.hidden)
        low, high = self.standardise(low), self.standardise(high)
        change, actions = (high - low) / self.difference_std, torch.ones(self.action)
        return torch.cat([low, -change, -actions]), torch.cat([high, change, actions])

    def clipped_apart(self) -> Sequence[nn.Module]:
        """The prediction of latents, and the heads."""
        return [
            nn.ModuleList([self.lstm, self.change] if self.lstm is not None else [self.change]),
            self.reward,
            self.end,
        ]

    def standardise(self, z: Tensor) -> Tensor:
        """Latents of V in units of their standard deviation."""
        return (z - self.z_mean) / self.z_std

    def remember(self, z: Tensor, action: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """A step from standardised z (B, Z): its inputs (B, 2 Z + A), what M remembers for the prediction (B, ...), and
        the next state."""
        h, c, previous, started = state
        difference = (z - previous) / self.difference_std * started
        inputs = torch.cat([z, difference, action], -1)
        if self.lstm is None:
            context, h = h[:, self.latent :], inputs
        else:
            h, c = torch.lstm_cell(inputs, (h, c), *self.lstm.all_weights[0])
            context = h
        return inputs, context, (h, c, z, torch.ones_like(started))

    def predict(self, inputs: Tensor, context: Tensor) -> Tensor:
        """The next standardised latent (..., Z)."""
        change = self.change(torch.cat([inputs, context], -1)).float()
        return inputs[..., : self.latent] + change * self.difference_std

    def outcome(self, inputs: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """Of transitions to the standardised latents `following` (..., Z): the mean reward (...), and the probability
        that the episode ends with them (...)."""
        transition = self.transition(inputs, following)
        end = torch.sigmoid(self.end(transition).float().squeeze(-1))
        return self.mean_reward(self.reward(transition), end), end

    def mean_reward(self, log_probs: Tensor, end: Tensor) -> Tensor:
        """The mean reward (...) of steps that end the episode with probability `end` (...), from log-probabilities
        (..., 2, bins) of the reward of a step after which it goes on, and of one that ends it."""
        going_on, last = self.reward.mean(log_probs).unbind(-1)
        return torch.lerp(going_on, last, end) * self.reward_unit

    def transition(self, inputs: Tensor, following: Tensor) -> Tensor:
        """What the heads see of a step, (..., 3 Z + A)."""
        return torch.cat([inputs, (following - inputs[..., : self.latent]) / self.difference_std], -1)

    def loss(
        self,
        means: Tensor,
        noise: Tensor,
        action: Tensor,
        rewards: Tensor,
        ends: Tensor,
        mask: Tensor,
        part: Part | None = None,
        dreamt_rewards: bool = False,
    ) -> RolloutLoss:
        """means (B, L + 1, Z) of V; noise (B, W + 1, Z) in units of V's; action (B, L, A); rewards, ends, mask (B, L).
        The rollout begins at row W; rows of the warm-up that do not exist are left out. Of a `part` of a batch, its
        share."""
        part = part or Part(0, mask.sum(0))
        z, warm_up = self.standardise(means), noise.shape[1] - 1
        real = z[:, : warm_up + 1] + noise / self.z_std
        state, current, losses, transitions = self.initial_state(len(z), z.device), real[:, 0], [], []
        for step in range(action.shape[1]):
            if step <= warm_up:
                current = real[:, step]
            inputs, context, state = self.remember(current, action[:, step], state)
            if step < warm_up:
                state = tuple(value * mask[:, step, None] for value in state)
            current = self.predict(inputs, context)
            losses.append(self._huber(current, z[:, step + 1]))
            if step >= warm_up:
                # Detached: the reward and end heads learn from dreamt states, and must not bend them to their wishes.
                transitions.append(self.transition(inputs, current).detach())
        each = torch.stack(losses, 1)
        rollout, warm = (
            _mean(each[:, steps], mask[:, steps], part.steps[steps]) for steps in (slice(warm_up, None), slice(warm_up))
        )
        kinds = self._real_transitions(z, action, mask, warm_up), torch.stack(transitions, 1)
        rewards, ends, mask = (values[:, warm_up:] for values in (rewards, ends, mask))
        rest = Part(part.first, part.steps[warm_up:])
        reward, end = self._outcome_losses(*kinds, rewards, ends, mask, rest, dreamt_rewards)
        return RolloutLoss(rollout + warm + reward + end, rollout, warm, reward, end)

    def _huber(self, predicted: Tensor, real: Tensor) -> Tensor:
        error = (predicted - real) / self.difference_std
        return functional.smooth_l1_loss(error, torch.zeros_like(error), reduction="none").mean(-1)

    def _real_transitions(self, z: Tensor, action: Tensor, mask: Tensor, first: int) -> Tensor:
        """The transitions of the steps from `first` on: of these a window has every step of an episode equally often,
        the last one included."""
        started = mask[:, first - 1 : -1, None] if first else functional.pad(mask[:, :-1, None], (0, 0, 1, 0))
        previous = z[:, first - 1 : -2] if first else functional.pad(z[:, :-2], (0, 0, 1, 0))
        difference = (z[:, first:-1] - previous) / self.difference_std * started
        return self.transition(torch.cat([z[:, first:-1], difference, action[:, first:]], -1), z[:, first + 1 :])

    def _outcome_losses(
        self,
        real: Tensor,
        dreamt: Tensor,
        rewards: Tensor,
        ends: Tensor,
        mask: Tensor,
        part: Part,
        dreamt_rewards: bool,
    ) -> tuple[Tensor, Tensor]:
        """Cross-entropies of rewards and ends; of the ends, and with `dreamt_rewards` of both, on dreamt transitions in
        every second window."""
        mixed = real.clone()
        # Of the whole batch, whatever piece this is, so that pieces add up to it.
        other = slice(1 - part.first % 2, None, 2)  # every second window of the batch
        mixed[other] = dreamt[other]
        paid = self.reward(mixed if dreamt_rewards else real)
        both = self.reward.loss(paid, (rewards / self.reward_unit).unsqueeze(-1).expand(*ends.shape, 2))
        reward = torch.lerp(both[..., 0], both[..., 1], ends)
        end = functional.binary_cross_entropy_with_logits(self.end(mixed).float().squeeze(-1), ends, reduction="none")
        return _mean(reward, mask, part.steps), _mean(end, mask, part.steps)

    def hidden_states(self, z: Tensor, action: Tensor) -> Tensor:
        """h (B, L, H) after every step of sequences from their start: z (B, L, Z), action (B, L, A)."""
        return self._along(z, action)[1]

    def _along(self, z: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs of every step of sequences, and h after it."""
        z = self.standardise(z)
        difference = functional.pad((z[:, 1:] - z[:, :-1]) / self.difference_std, (0, 0, 1, 0))
        inputs = torch.cat([z, difference, action], -1)
        return inputs, inputs if self.lstm is None else self.lstm(inputs)[0]

    def one_step(self, z: Tensor, action: Tensor, following: Tensor) -> OneStep:
        """Predictions of the latents `following` z (B, L, Z) along sequences from their start."""
        inputs, hidden = self._along(z, action)
        context = hidden
        if self.lstm is None:
            context = functional.pad(hidden[:, :-1, self.latent :], (0, 0, 1, 0))
        predicted = self.predict(inputs, context)
        reward, end = self.outcome(inputs, predicted)
        error = (predicted - self.standardise(following)) / self.residual_std
        nll = (0.5 * error.square() + (self.residual_std * self.z_std).log()).mean(-1) + 0.5 * math.log(2 * math.pi)
        return OneStep(predicted * self.z_std + self.z_mean, nll, reward, end, hidden)


def _mlp(inputs: int, units: int, outputs: int) -> nn.Sequential:
    """Two layers of SiLU units; the untrained output is 0."""
    last = nn.Linear(units, outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, units), nn.SiLU(), nn.Linear(units, units), nn.SiLU(), last)


def _mean(values: Tensor, mask: Tensor, steps: Tensor) -> Tensor:
    """The mean of values (B, L) over the steps of the mask, of which the whole batch has `steps` (L,); 0 without
    any."""
    return (values * mask).sum() / steps.sum().clamp(min=1)
