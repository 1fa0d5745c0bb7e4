"""PPO on Pong in the real environment, learning included, on one core: environment steps per second. Against the bare
emulator (`act` with frame skip 4, no screen), and against stable-baselines3's PPO on a gymnasium environment that
returns the same V's latents, with as many environments, steps, epochs and units. Without stable-baselines3 the second
row is left out."""

import importlib.util
import sys
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.measure import one_core, rates, report
from benchmarks.reference import LATENT
from wm.actions import ActionSpace
from wm.envs.pixel_env import PixelEnv
from wm.envs.registry import EnvConfig
from wm.models.controller import Controller
from wm.models.vae.networks import Vae, build
from wm.policy_gradient.network import ActorCritic
from wm.policy_gradient.ppo import make_optimizer, update
from wm.policy_gradient.real_rollouts import PASSES, Place, Played, Recorder
from wm.rollouts.agents import VmcAgent
from wm.rollouts.players import NUM_ENVS

PONG = EnvConfig("Pong")
# Twice the preset's 128 steps; docs/scale.md computes with the same task.
STEPS, UNITS = 256, 128


def small_vae() -> Vae:
    """The default V of Pong, untrained."""
    torch.manual_seed(0)
    return build("small", 64, 3, LATENT).requires_grad_(False)


def small_controller() -> Controller:
    """The laptop preset's for Pong, on z and its difference."""
    space, layers = ActionSpace(count=6), (UNITS, UNITS)
    return Controller(2 * LATENT, space, "categorical", (3, 0, 2), layers=layers, difference=True, sampled=True)


def new_places() -> list[Place]:
    """Eight environments."""
    return [Place(PONG, number, 0) for number in range(NUM_ENVS)]


def play(vae: Vae, controller: Controller, parameters: NDArray[np.float32], places: list[Place], steps: int) -> Played:
    """Steps in all places, with new random numbers."""
    agent = VmcAgent(vae, None, controller, parameters[None], NUM_ENVS)
    recorder = Recorder(agent, places, [np.random.default_rng(number) for number in range(NUM_ENVS)])
    for _ in range(steps):
        recorder.step(0)
    return recorder.finish()


def ours() -> Callable[[], int]:
    """An iteration: eight environments play 256 steps, and an update; returns steps."""
    places, vae, controller = new_places(), small_vae(), small_controller()
    network = ActorCritic(controller, 0)
    # The defaults of the preset: step size, discount and entropy below.
    optimizer, random = make_optimizer(network, 7e-4), np.random.default_rng(0)
    distribution = controller.distribution
    assert distribution is not None

    def iteration() -> int:
        played = play(vae, controller, network.parameter_vector(), places, STEPS)
        rollout = played.rollout
        update(network, optimizer, distribution, rollout, rollout.rewards, 0.99, 0.01, PASSES, random)
        return played.env_steps

    return iteration


class LatentEnv(gym.Env[Any, Any]):
    """Pong whose observations are [z, z - z before], encoded one frame at a time."""

    action_space = gym.spaces.Discrete(3)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2 * LATENT,), np.float32)

    def __init__(self, vae: Vae) -> None:
        self._env: PixelEnv = PONG.make()
        self._vae = vae

    def _encode(self, frame: Any) -> Any:
        with torch.inference_mode():
            return self._vae.encode(torch.from_numpy(frame)[None])[0][0].numpy()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        frame, info = self._env.reset(seed=seed)
        self._z = self._encode(frame)
        return np.concatenate([self._z, 0 * self._z]), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        frame, reward, terminated, truncated, info = self._env.step((3, 0, 2)[action])
        before, self._z = self._z, self._encode(frame)
        return np.concatenate([self._z, self._z - before]), reward, terminated, truncated, info


def stable_baselines() -> Callable[[], int]:
    """The same iteration by stable-baselines3; returns steps."""
    from stable_baselines3 import PPO  # type: ignore[import-not-found]
    from stable_baselines3.common.vec_env import DummyVecEnv  # type: ignore[import-not-found]

    vae = small_vae()
    model = PPO(
        "MlpPolicy", DummyVecEnv([lambda: LatentEnv(vae)] * NUM_ENVS), n_steps=STEPS, batch_size=PASSES.minibatch,
        n_epochs=PASSES.epochs, device="cpu", seed=0,
        policy_kwargs={"net_arch": [UNITS, UNITS], "activation_fn": torch.nn.SiLU},
    )  # fmt: skip

    def iteration() -> int:
        model.learn(STEPS * NUM_ENVS, reset_num_timesteps=False)
        return STEPS * NUM_ENVS

    return iteration


def bare_emulator() -> Callable[[], int]:
    """500 steps of the emulator alone; returns steps."""
    env = PONG._build()
    env.reset(seed=0)
    ale = env.unwrapped.ale  # type: ignore[attr-defined]
    actions = list(env.unwrapped._action_set)  # type: ignore[attr-defined]
    drawn = np.random.default_rng(0).integers(0, len(actions), 500).tolist()

    def play() -> int:
        for action in drawn:
            for _ in range(4):
                ale.act(actions[action], 1.0)
            if ale.game_over():
                ale.reset_game()
        return len(drawn)

    return play


def main() -> None:
    one_core()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    iteration = ours()
    own, alone, ratio = rates(iteration, bare_emulator(), seconds=2.0)
    report("ppo_pong_emulator", own, alone, 0.45, "steps/s", ratio)
    if importlib.util.find_spec("stable_baselines3") is None:
        print("stable-baselines3 is not installed, which is left out", file=sys.stderr)
        return
    own, alone, ratio = rates(iteration, stable_baselines(), seconds=2.0)
    report("ppo_pong_sb3", own, alone, 2.5, "steps/s", ratio)


if __name__ == "__main__":
    main()
