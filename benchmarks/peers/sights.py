"""What others' learners see of an environment's frames: the last four of them, or V's latents."""

from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from wm.envs.registry import EnvConfig
from wm.models.vae.inference import InferenceEncoder
from wm.pretrained import load_vae

# Frames in an observation, as in DQN (Mnih et al. 2015).
STACK = 4


class Sight(Protocol):
    """Makes observations of the frames (N, H, W, C) of N environments."""

    env: EnvConfig
    space: gym.spaces.Box

    def begin(self, index: int) -> None:
        """A new episode begins in this environment."""

    def see(self, frames: NDArray[np.uint8]) -> NDArray[Any]:
        """The observations (N, ...), once for every step."""

    def last(self, index: int, frame: NDArray[np.uint8]) -> NDArray[Any]:
        """What the next step would observe in one environment, with this frame: the end of its episode."""


class Stacked:
    """The last frames: in Atari's games gray ones of 84 pixels, as AtariWrapper makes them, elsewhere those that V
    sees. Before an episode's first frame there is black."""

    def __init__(self, env: str, count: int) -> None:
        self.env = EnvConfig(env)
        if self.env.spec().is_atari:
            # 84 pixels and gray, as in the zoo's settings for Atari.
            self.env = EnvConfig(env, size=84, gray=True)
        height, width, self._channels = self.env.frame_shape
        shape = height, width, STACK * self._channels
        self.space = gym.spaces.Box(0, 255, shape, np.uint8)
        self._stacks = np.zeros((count, *shape), np.uint8)

    def begin(self, index: int) -> None:
        self._stacks = self._stacks.copy()  # a learner still has the observations of the step before
        self._stacks[index] = 0

    def see(self, frames: NDArray[np.uint8]) -> NDArray[Any]:
        self._stacks = np.concatenate([self._stacks[..., self._channels :], frames], -1)
        return self._stacks

    def last(self, index: int, frame: NDArray[np.uint8]) -> NDArray[Any]:
        return np.concatenate([self._stacks[index, ..., self._channels :], frame], -1)


class Latents:
    """V's mean z and its difference from the step before, as our C sees them."""

    def __init__(self, vae: Path, count: int) -> None:
        trained = load_vae(vae, "wm train-vae")
        self.env = trained.env
        self.space = gym.spaces.Box(-np.inf, np.inf, (2 * trained.config.latent,), np.float32)
        self._encoder = InferenceEncoder(trained.model, count)
        self._z = np.zeros((count, trained.config.latent), np.float32)
        self._starts = np.ones(count, bool)

    def begin(self, index: int) -> None:
        self._starts[index] = True

    def see(self, frames: NDArray[np.uint8]) -> NDArray[Any]:
        z = self._encoder.encode(torch.from_numpy(frames)).numpy().copy()
        difference = np.where(self._starts[:, None], np.float32(0), z - self._z)
        self._z, self._starts = z, np.zeros_like(self._starts)
        return np.concatenate([z, difference], 1)

    def last(self, index: int, frame: NDArray[np.uint8]) -> NDArray[Any]:
        frames = np.repeat(frame[None], len(self._z), 0)
        z = self._encoder.encode(torch.from_numpy(frames)).numpy()[0]
        return np.concatenate([z, z - self._z[index]])


def open_sight(method: str, env: str, count: int, vae: Path | None) -> Sight:
    """What a method of PEERS sees of `count` environments; on latents, by the V of this folder."""
    if vae is not None and method.endswith("latents"):
        return Latents(vae, count)
    return Stacked(env, count)
