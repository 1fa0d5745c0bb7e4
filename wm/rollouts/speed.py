"""How fast this machine plays: what a step costs, measured before a stage starts."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from wm.actions import ActionSpace
from wm.envs.pixel_env import PixelEnv
from wm.envs.registration import guarded
from wm.envs.registry import EnvConfig
from wm.models.mdnrnn.cell import make_cell
from wm.models.mdnrnn.predictor import Predictor
from wm.models.vae.inference import InferenceEncoder
from wm.models.vae.networks import Vae
from wm.rollouts.players import NUM_ENVS

# Steps of random play, from which a step's time is the mean.
ENV_STEPS = 200
MOST_SECONDS = 5.0  # slow simulators take as many for a few steps
# Calls of a network, of which the median counts: the first ones allocate.
MODEL_CALLS = 20
SHORTEST = 0.1  # of the longest episode: what an untrained controller may play

Clock = Callable[[], float]


@dataclass(frozen=True)
class PlayingSpeed:
    """The frames and actions of an environment, the steps of its longest episode, and the seconds of a step."""

    frame_shape: tuple[int, ...]
    space: ActionSpace
    longest: int
    seconds: float

    def with_models(self, vae: Vae, mdnrnn: Predictor | None, clock: Clock) -> "PlayingSpeed":
        """The speed with V, and M if C has a memory, in the loop, as the controller runs them: a batch of NUM_ENVS
        episodes."""
        frames = torch.zeros(NUM_ENVS, vae.size, vae.size, vae.channels, dtype=torch.uint8)
        encoder, predicting = InferenceEncoder(vae, NUM_ENVS), 0.0
        with torch.inference_mode():
            encoding = _median_seconds(lambda: encoder.encode(frames), clock)
            if mdnrnn is not None:
                z, actions = torch.zeros(NUM_ENVS, mdnrnn.latent), torch.zeros(NUM_ENVS, self.space.width)
                cell, state = make_cell(mdnrnn, NUM_ENVS), mdnrnn.initial_state(NUM_ENVS)
                predicting = _median_seconds(lambda: cell.step(z, actions, state), clock)
        return replace(self, seconds=self.seconds + (encoding + predicting) / NUM_ENVS)

    def duration(self, steps: float, workers: int) -> tuple[float, float]:
        """The least and the most seconds of episodes that have at most so many steps together."""
        most = steps * self.seconds / workers
        return SHORTEST * most, most


def measure_env(config: EnvConfig, clock: Clock) -> PlayingSpeed:
    """Play random actions for a few steps, and not longer than a few seconds. Raises EnvironmentFault."""
    with closing(config.make()) as env:
        seconds = guarded(config.name, lambda: _step_seconds(env, clock))
        longest, space = config.longest(env.env.own_limit), ActionSpace.of(env.action_space)
    return PlayingSpeed(config.frame_shape, space, longest, seconds)


def _step_seconds(env: PixelEnv, clock: Clock) -> float:
    env.reset(seed=0)
    # The same actions at each measurement, so that two plans of one environment agree.
    env.action_space.seed(0)
    started, seconds, steps = clock(), 0.0, 0
    while steps < ENV_STEPS and seconds < MOST_SECONDS:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps += 1
        if terminated or truncated:
            env.reset(seed=steps)
        seconds = clock() - started
    return seconds / steps


def _median_seconds(call: Callable[[], Any], clock: Clock) -> float:
    call()
    durations = []
    for _ in range(MODEL_CALLS):
        started = clock()
        call()
        durations.append(clock() - started)
    return float(np.median(durations))
