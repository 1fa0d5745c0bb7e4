"""What a training by policy gradient takes, measured before it starts."""

from collections.abc import Callable

import numpy as np
import torch

from wm.dreams.env import DreamConfig, InitialStates
from wm.models.controller import Controller
from wm.models.mdnrnn.predictor import Predictor
from wm.policy_gradient.dream_rollouts import PASSES as DREAM_PASSES
from wm.policy_gradient.dream_rollouts import DreamRecorder, dream_format
from wm.policy_gradient.imitation import MINIBATCH, MOST_STEPS
from wm.policy_gradient.network import ActorCritic
from wm.policy_gradient.ppo import Passes, Rollout, make_optimizer, update
from wm.policy_gradient.real_rollouts import PASSES as REAL_PASSES
from wm.policy_gradient.snapshots import MOST as MOST_SNAPSHOTS
from wm.rollouts.players import NUM_ENVS
from wm.rollouts.speed import PlayingSpeed
from wm.settings import ControllerSettings
from wm.training.cpu_threads import one_thread

TIMED_UPDATES, TIMED_DREAM_STEPS = 2, 5  # after one that is not timed, because it also allocates
# Episodes cost other than random play: the ball is in play for longer, the car drives; and the machine has other work.
FASTEST, SLOWEST = 0.6, 1.6
FLOAT_BYTES = 4  # weights are float32


def disk_bytes(controller: Controller) -> tuple[int, int]:
    """Bytes that the weights of a finished training take, and those of its checkpoints meanwhile."""
    policy = FLOAT_BYTES * controller.parameters
    networks = FLOAT_BYTES * sum(tensor.numel() for tensor in ActorCritic(controller, 0).state_dict().values())
    snapshots = MOST_SNAPSHOTS * policy
    # The last checkpoint and the next one: the networks, the best ones, and Adam's two moments.
    return 2 * policy + snapshots + networks, 2 * (4 * networks + snapshots)


def training_seconds(
    clock: Callable[[], float],
    settings: ControllerSettings,
    controller: Controller,
    memory: Predictor,
    speed: PlayingSpeed,
    action_repeat: int,
    workers: int,
) -> tuple[float, float]:
    """The least and the most seconds, with `memory` as M. A target may be reached at the first validation."""
    rows = settings.places * settings.steps_per_place
    validation = settings.validation_episodes * speed.longest * speed.seconds / workers
    validating = 2 * validation  # the last ones
    if settings.in_ == "real":
        limit = settings.step_limit
        actions = limit / action_repeat
        playing = actions * speed.seconds / min(workers, settings.places // NUM_ENVS)
    else:
        actions = limit = settings.max_dream_steps
        temperature, sticky = float(settings.temperature), settings.sticky_share
        playing = actions * _dream_seconds(
            clock, controller, memory, dreams=settings.places, temperature=temperature, sticky=sticky
        )
        validating += settings.max_dream_steps // settings.validate_steps * validation
    passes = (REAL_PASSES if settings.in_ == "real" else DREAM_PASSES).with_minibatch(settings.minibatch)
    update_seconds = _update_seconds(clock, settings, controller, passes)
    expected = playing + actions / rows * update_seconds
    least, most = FASTEST * expected, SLOWEST * expected + validating
    if settings.imitate:  # of few episodes it takes less
        most += SLOWEST * MOST_STEPS * MINIBATCH / (rows * passes.epochs) * update_seconds
    if settings.target_return is not None:
        least *= min(settings.validate_steps / limit, 1)
    if settings.max_hours:
        least, most = min(least, settings.max_hours * 3600), min(most, settings.max_hours * 3600 + validating)
    return least, most


@one_thread()
def _dream_seconds(
    clock: Callable[[], float],
    controller: Controller,
    memory: Predictor,
    *,
    dreams: int,
    temperature: float,
    sticky: float,
) -> float:
    """The time of a step of one of so many dreams, the first step left out."""
    # Wide bounds, which no latent reaches: clipping costs the same time.
    z, bound = torch.zeros(1, memory.latent), torch.full((memory.latent,), 10.0)
    initial = InitialStates.at_start(memory, z, controller.space.width, -bound, bound)
    config = DreamConfig(memory, initial, controller.space, temperature, 0, dream_format())
    parameters = np.zeros(controller.parameters, np.float32)
    recorder = DreamRecorder(config, controller, parameters, dreams, np.random.default_rng(0), sticky)
    seconds = []
    for _ in range(1 + TIMED_DREAM_STEPS):
        started = clock()
        recorder.step()
        seconds.append(clock() - started)
    return float(np.median(seconds[1:])) / dreams


@one_thread()
def _update_seconds(
    clock: Callable[[], float], settings: ControllerSettings, controller: Controller, passes: Passes
) -> float:
    """The time of an update on random numbers, the first one left out."""
    network, distribution = ActorCritic(controller, 0), controller.distribution
    assert distribution is not None
    optimizer, random = make_optimizer(network, settings.learning_rate), np.random.default_rng(0)
    shape = settings.steps_per_place, settings.places
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
        update(
            network, optimizer, distribution, rollout, zeros, settings.gamma, settings.entropy_weight, passes, random
        )
        seconds.append(clock() - started)
    return float(np.median(seconds[1:]))
