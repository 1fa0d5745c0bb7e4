"""M as an environment. A dream starts from a real encoded frame, goes on by M's samples, and ends by M's end head."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.actions import ActionSpace
from wm.models.cell import Cell
from wm.models.controller import Controller
from wm.models.mdnrnn import MdnRnn, State
from wm.seeding import integer


@dataclass(frozen=True)
class Starts:
    """Where dreams may begin: N real latents (N, Z) and the state M had reached there."""

    z: Tensor
    state: State

    def take(self, rows: NDArray[np.int64]) -> "Starts":
        """A selection, with repetition allowed."""
        return Starts(self.z[rows], (self.state[0][rows], self.state[1][rows]))


@torch.inference_mode()
def warm_starts(mdnrnn: MdnRnn, z: Tensor, actions: Tensor) -> Starts:
    """Starts after M has seen real contexts: z (N, L + 1, Z) and encoded actions (N, L, A). L may be 0."""
    cell, state = Cell(mdnrnn), mdnrnn.start(len(z))
    for step in range(actions.shape[1]):
        state = cell.step(z[:, step], actions[:, step], state)
    return Starts(z[:, -1], state)


class Dreams:
    """N dreams at once. `step` advances all of them; the caller keeps account of which have ended. Products are in
    `dtype`."""

    def __init__(
        self, mdnrnn: MdnRnn, starts: Starts, temperature: float, seed: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self.temperature = temperature
        self._cell = Cell(mdnrnn, dtype)
        self._random = torch.Generator().manual_seed(seed)
        self.z, self.state = starts.z, starts.state

    @property
    def hidden(self) -> Tensor:
        """M's h, (N, H): what C sees beside z."""
        return self.state[0]

    @torch.inference_mode()
    def step(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded actions (N, A) -> rewards (N,), and whether the episode ends here (N,) bool. `z` moves on."""
        self.state = self._cell.step(self.z, actions, self.state)
        self.z, reward, end = self._cell.draw(self.z, self.hidden, self.temperature, self._random)
        return reward, torch.rand(len(end), generator=self._random) < end


class DreamEnv(gym.Env[NDArray[np.float32], Any]):
    """One dream behind gymnasium's interface: observations are latents (Z,), actions those of the real environment.

    `info["hidden"]` is M's h. Dreams are truncated after `max_steps`.
    """

    def __init__(
        self,
        mdnrnn: MdnRnn,
        starts: Starts,
        space: ActionSpace,
        action_space: gym.Space[Any],
        temperature: float,
        max_steps: int,
    ) -> None:
        self.action_space = action_space
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (mdnrnn.latent,), np.float32)
        self._mdnrnn, self._starts, self._space = mdnrnn, starts, space
        self._temperature, self._max_steps = temperature, max_steps
        self._dreams: Dreams | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        row = self.np_random.integers(len(self._starts.z), size=1)
        noise = int(self.np_random.integers(1 << 62))
        self._dreams = Dreams(self._mdnrnn, self._starts.take(row), self._temperature, noise)
        self._steps = 0
        return self._observe()

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if self._dreams is None:
            raise gym.error.ResetNeeded("call reset before step")
        encoded = torch.from_numpy(self._space.encode(np.asarray(action)[None]))
        reward, ended = self._dreams.step(encoded)
        self._steps += 1
        terminated = bool(ended[0])
        observation, info = self._observe()
        return observation, float(reward[0]), terminated, not terminated and self._steps >= self._max_steps, info

    def _observe(self) -> tuple[NDArray[np.float32], dict[str, Any]]:
        assert self._dreams is not None
        return self._dreams.z[0].numpy().copy(), {"hidden": self._dreams.hidden[0].numpy().copy()}


@dataclass(frozen=True)
class Imagined:
    """Returns and lengths of N dreams, and whether each ended by itself rather than by the step limit."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    ended: NDArray[np.bool_]


@torch.inference_mode()
def imagine(
    mdnrnn: MdnRnn,
    controller: Controller,
    weights: Tensor,
    starts: Starts,
    temperature: float,
    max_steps: int,
    *seed_path: int | str,
    dtype: torch.dtype = torch.float32,
) -> Imagined:
    """Play N controllers, weights (N, parameters), in N dreams whose products are in `dtype`. A controller of Z inputs
    sees no h."""
    dreams = Dreams(mdnrnn, starts, temperature, integer(*seed_path), dtype)
    count = len(weights)
    returns, lengths = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    alive = torch.ones(count, dtype=torch.bool)
    for _ in range(max_steps):
        actions = controller.act(weights, torch.cat([dreams.z, dreams.hidden], 1)[:, : controller.inputs])
        reward, ended = dreams.step(torch.from_numpy(controller.space.encode(actions)))
        returns += torch.where(alive, reward.double(), 0.0)
        lengths += alive
        alive &= ~ended
        if not alive.any():
            break
    return Imagined(returns.numpy(), lengths.numpy(), (~alive).numpy())
