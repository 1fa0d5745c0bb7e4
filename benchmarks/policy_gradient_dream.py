"""PPO in dreams, learning included, on one core: dream steps per second of 512 dreams in Pong's preset. Against 60,000,
and against stable-baselines3's PPO in the same dreams, all of them one batch there too, with as many steps, epochs and
units. Without stable-baselines3 the second row is left out."""

import importlib.util
import sys
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.measure import one_core, rate, rates, report
from benchmarks.policy_gradient import UNITS
from benchmarks.reference import LATENT
from wm.actions import ActionSpace
from wm.dreams.env import DreamConfig, DreamVectorEnv, InitialStates
from wm.models.controller import Controller
from wm.models.mdnrnn.rollout_network import RolloutNetwork
from wm.policy_gradient.dream_rollouts import PASSES, DreamRecorder, dream_format
from wm.policy_gradient.network import ActorCritic
from wm.policy_gradient.ppo import make_optimizer, update

# Pong's preset: all six actions, 512 dreams of 50 steps.
ACTIONS, DREAMS, STEPS = 6, 512, 50
RARE = -7.0  # the logit of one end in a thousand steps


def dreams() -> DreamConfig:
    """Of an untrained M as in the presets of Pong, without memory."""
    torch.manual_seed(0)
    model = RolloutNetwork(LATENT, ACTIONS, 0, 384).requires_grad_(False)
    model.end[-1].bias.fill_(RARE)
    # Wide bounds, which no latent reaches.
    bound = torch.full((LATENT,), 6.0)
    initial = InitialStates.at_start(model, torch.randn(1000, LATENT), ACTIONS, -bound, bound)
    return DreamConfig(model, initial, ActionSpace(count=ACTIONS), 1.0, STEPS, dream_format())


def ours() -> Callable[[], int]:
    """An iteration: every dream plays its steps, and an update; returns steps."""
    config, layers = dreams(), (UNITS, UNITS)
    controller = Controller(2 * LATENT, config.space, "categorical", (3, 0, 2), 0, None, layers, True, sampled=True)
    network, random = ActorCritic(controller, 0), np.random.default_rng(0)
    optimizer, distribution = make_optimizer(network, 7e-4), controller.distribution
    assert distribution is not None

    def iteration() -> int:
        recorder = DreamRecorder(config, controller, network.parameter_vector(), DREAMS, random)
        for _ in range(STEPS):
            recorder.step()
        rollout = recorder.finish().rollout
        update(network, optimizer, distribution, rollout, rollout.rewards, 0.99, 0.02, PASSES, random)
        return DREAMS * STEPS

    return iteration


def stable_baselines() -> Callable[[], int]:
    """The same iteration by stable-baselines3, whose observations are [z, z - z before]; returns steps."""
    from stable_baselines3 import PPO  # type: ignore[import-not-found]
    from stable_baselines3.common.vec_env import VecEnv  # type: ignore[import-not-found]

    class Adapter(VecEnv):  # type: ignore[misc]
        """gymnasium's vector environment as stable-baselines3 takes it."""

        def __init__(self) -> None:
            self._env = DreamVectorEnv(dreams(), gym.spaces.Discrete(ACTIONS), DREAMS)
            observations = gym.spaces.Box(-np.inf, np.inf, (2 * LATENT,), np.float32)
            super().__init__(DREAMS, observations, gym.spaces.Discrete(3))
            self._infos: list[dict[str, Any]] = [{} for _ in range(DREAMS)]

        def reset(self) -> NDArray[np.float32]:
            self._z, _ = self._env.reset(seed=0)
            return np.concatenate([self._z, 0 * self._z], 1)

        def step_async(self, actions: NDArray[np.int64]) -> None:
            self._actions = np.array((3, 0, 2))[actions]

        def step_wait(self) -> tuple[Any, ...]:
            z, rewards, terminated, truncated, _ = self._env.step(self._actions)
            before, self._z = self._z, z
            return np.concatenate([z, z - before], 1), rewards, terminated | truncated, self._infos

        def close(self) -> None: ...

        def get_attr(self, name: str, indices: Any = None) -> list[Any]:
            return [None] * DREAMS

        def set_attr(self, name: str, value: Any, indices: Any = None) -> None: ...

        def env_method(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
            return []

        def env_is_wrapped(self, wrapper: Any, indices: Any = None) -> list[bool]:
            return [False] * DREAMS

    model = PPO(
        "MlpPolicy", Adapter(), n_steps=STEPS, batch_size=PASSES.minibatch, n_epochs=PASSES.epochs, device="cpu",
        seed=0, policy_kwargs={"net_arch": [UNITS, UNITS], "activation_fn": torch.nn.SiLU},
    )  # fmt: skip

    def iteration() -> int:
        model.learn(DREAMS * STEPS, reset_num_timesteps=False)
        return DREAMS * STEPS

    return iteration


def main() -> None:
    one_core()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    iteration = ours()
    report("ppo_dream_rate", rate(iteration, 1.0), 60_000, 1.0, "steps/s")
    if importlib.util.find_spec("stable_baselines3") is None:
        print("stable-baselines3 is not installed, which is left out", file=sys.stderr)
        return
    own, alone, ratio = rates(iteration, stable_baselines(), seconds=1.0)
    report("ppo_dream_sb3", own, alone, 8.0, "steps/s", ratio)


if __name__ == "__main__":
    main()
