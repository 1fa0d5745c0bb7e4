"""What a training by policy gradient takes, measured before it starts."""

from collections.abc import Callable

import numpy as np
import torch

from wm.models.controller import Controller
from wm.policy_gradient.network import ActorCritic
from wm.policy_gradient.ppo import Rollout, make_optimizer, update
from wm.rollouts.players import NUM_ENVS
from wm.rollouts.speed import SHORTEST, PlayingSpeed
from wm.settings import ControllerSettings

TIMED_UPDATES = 2
# Episodes cost other than random play: the ball is in play for longer, the car drives; and the machine has other work.
FASTEST, SLOWEST = 0.6, 1.6


def training_seconds(
    clock: Callable[[], float],
    settings: ControllerSettings,
    controller: Controller,
    speed: PlayingSpeed,
    action_repeat: int,
    workers: int,
) -> tuple[float, float]:
    """The least and the most seconds. A target may be reached, or --max-hours over, long before the last step."""
    processes = min(workers, settings.num_envs // NUM_ENVS)
    actions = settings.step_limit / action_repeat
    rows = settings.num_envs * settings.rollout_steps
    learning = actions / rows * _update_seconds(clock, settings, controller)
    validating = 2 * settings.validation_episodes * speed.longest * speed.seconds / workers  # the last ones
    expected = actions * speed.seconds / processes + learning
    early = settings.target_return is not None or settings.max_hours > 0
    most = SLOWEST * expected + validating
    if settings.max_hours:
        most = min(most, settings.max_hours * 3600 + validating)
    return (SHORTEST if early else FASTEST) * expected, most


def _update_seconds(clock: Callable[[], float], settings: ControllerSettings, controller: Controller) -> float:
    """The time of an update on random numbers, the first one left out."""
    network, distribution = ActorCritic(controller, 0), controller.distribution
    assert distribution is not None
    optimizer, random = make_optimizer(network, settings.learning_rate), np.random.default_rng(0)
    shape = settings.rollout_steps, settings.num_envs
    features = torch.from_numpy(random.standard_normal((*shape, controller.inputs), np.float32))
    outputs, _ = network(features.flatten(0, 1))
    choices = distribution.draw(outputs.detach(), random)
    log_probs = distribution.log_prob(outputs, choices).detach()
    zeros, cut = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
    cut[-1] = True
    rollout = Rollout(
        features, choices.unflatten(0, shape), log_probs.view(shape), zeros, zeros + 1, ~torch.zeros_like(cut), cut,
        features[-1],
    )  # fmt: skip
    seconds = []
    for _ in range(1 + TIMED_UPDATES):
        started = clock()
        update(network, optimizer, distribution, rollout, zeros, settings.gamma, settings.entropy, random)
        seconds.append(clock() - started)
    return float(np.median(seconds[1:]))
