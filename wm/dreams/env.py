"""M as an environment. A dream starts from a real encoded frame, goes on by M's samples, and ends by M's end head."""

from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.actions import ActionSpace
from wm.models.controller import SERVE_STEPS, Controller
from wm.models.mdnrnn.inference import MdnRnnCell
from wm.models.mdnrnn.network import MdnRnn, State
from wm.seeding import integer


@dataclass(frozen=True)
class InitialStates:
    """Where dreams may begin: N real latents (N, Z) and the state M had reached there; and between which latents, `low`
    and `high` (Z,), dreams stay. M knows nothing of latents that V never gave, and without bounds a dream that has left
    them goes on and on (after 300 steps of CarRacing its latents had 150 times reality's variance; with them 2.6)."""

    z: Tensor
    state: State
    low: Tensor
    high: Tensor

    def take(self, rows: NDArray[np.int64]) -> "InitialStates":
        """A selection, with repetition allowed."""
        return replace(self, z=self.z[rows], state=(self.state[0][rows], self.state[1][rows]))


@torch.inference_mode()
def warm_starts(mdnrnn: MdnRnn, z: Tensor, actions: Tensor, low: Tensor, high: Tensor) -> InitialStates:
    """InitialStates after M has seen real contexts: z (N, L + 1, Z) and encoded actions (N, L, A). L may be 0."""
    cell, state = MdnRnnCell(mdnrnn, len(z)), mdnrnn.start(len(z))
    for step in range(actions.shape[1]):
        state = cell.step(z[:, step], actions[:, step], state)
    return InitialStates(z[:, -1], state, low, high)


class Dreams:
    """N dreams at once. `step` advances all of them; the caller keeps account of which have ended. Products are in
    `dtype`."""

    def __init__(
        self, mdnrnn: MdnRnn, starts: InitialStates, temperature: float, seed: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self.temperature = temperature
        self._cell = MdnRnnCell(mdnrnn, len(starts.z), dtype)
        self._random = torch.Generator().manual_seed(seed)
        self.z, self.state = starts.z, starts.state
        self._low, self._high = starts.low, starts.high

    @property
    def hidden(self) -> Tensor:
        """M's h, (N, H): what C sees beside z."""
        return self.state[0]

    def keep(self, rows: Tensor) -> None:
        """Go on with these dreams (N,) bool alone."""
        self.z, self.state = self.z[rows], (self.state[0][rows], self.state[1][rows])

    def begin(self, rows: NDArray[np.int64], starts: InitialStates) -> None:
        """Put dreams back to starts, one for each of the rows."""
        z, h, c = self.z.clone(), self.state[0].clone(), self.state[1].clone()
        z[rows], h[rows], c[rows] = starts.z, *starts.state
        self.z, self.state = z, (h, c)

    @torch.inference_mode()
    def step(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded actions (N, A) -> rewards (N,), and whether the episode ends here (N,) bool. `z` moves on."""
        self.state = self._cell.step(self.z, actions, self.state)
        z, reward, end = self._cell.draw(self.z, self.hidden, self.temperature, self._random)
        self.z = torch.clamp(z, self._low, self._high)
        return reward, torch.rand(len(end), generator=self._random) < end


class DreamEnv(gym.Env[NDArray[np.float32], Any]):
    """One dream behind gymnasium's interface: observations are latents (Z,), actions those of the real environment.

    `info["hidden"]` is M's h. Dreams are truncated after `max_steps`.
    """

    def __init__(
        self,
        mdnrnn: MdnRnn,
        starts: InitialStates,
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


class DreamVectorEnv(gym.vector.VectorEnv[NDArray[np.float32], Any, NDArray[Any]]):
    """`num_envs` dreams behind gymnasium's vector interface, as `DreamEnv` is one. A dream that is over begins anew at
    the next step, whose reward is 0 (gymnasium's NEXT_STEP)."""

    metadata: dict[str, Any] = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        mdnrnn: MdnRnn,
        starts: InitialStates,
        space: ActionSpace,
        action_space: gym.Space[Any],
        temperature: float,
        max_steps: int,
        num_envs: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.num_envs = num_envs
        self.single_action_space = action_space
        self.action_space = gym.vector.utils.batch_space(action_space, num_envs)
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (mdnrnn.latent,), np.float32)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self._mdnrnn, self._starts, self._space, self._dtype = mdnrnn, starts, space, dtype
        self._temperature, self._max_steps = temperature, max_steps
        self._dreams: Dreams | None = None
        self._steps = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        rows = self.np_random.integers(len(self._starts.z), size=self.num_envs)
        noise = int(self.np_random.integers(1 << 62))
        self._dreams = Dreams(self._mdnrnn, self._starts.take(rows), self._temperature, noise, self._dtype)
        self._steps[:] = 0
        self._over[:] = False
        return self._observe()

    def step(
        self, actions: Any
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if self._dreams is None:
            raise gym.error.ResetNeeded("call reset before step")
        reward, ended = self._dreams.step(torch.from_numpy(self._space.encode(np.asarray(actions))))
        rewards, terminated, begun = reward.numpy().astype(np.float64), ended.numpy(), np.flatnonzero(self._over)
        self._steps += 1
        if len(begun):
            fresh = self._starts.take(self.np_random.integers(len(self._starts.z), size=len(begun)))
            self._dreams.begin(begun, fresh)
            rewards[begun], terminated[begun], self._steps[begun] = 0.0, False, 0
        truncated = ~terminated & (self._steps >= self._max_steps)
        self._over = terminated | truncated
        observation, info = self._observe()
        return observation, rewards, terminated, truncated, info

    def _observe(self) -> tuple[NDArray[np.float32], dict[str, Any]]:
        assert self._dreams is not None
        info = {"hidden": self._dreams.hidden.numpy().copy(), "_hidden": np.ones(self.num_envs, bool)}
        return self._dreams.z.numpy().copy(), info


@dataclass(frozen=True)
class DreamReturns:
    """Returns and lengths of N dreams, whether each ended by itself rather than by the step limit, and mean and
    variance of z per dimension, (Z,), over all their steps."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    ended: NDArray[np.bool_]
    z_mean: NDArray[np.float64]
    z_var: NDArray[np.float64]


@torch.inference_mode()
def imagine(
    mdnrnn: MdnRnn,
    controller: Controller,
    weights: Tensor,
    starts: InitialStates,
    temperature: float,
    max_steps: int,
    *seed_path: int | str,
    dtype: torch.dtype = torch.float32,
) -> DreamReturns:
    """Play N controllers, weights (N, parameters), in N dreams whose products are in `dtype`. A controller of Z inputs
    sees no h. Where the player has to serve, dreams begin with a serve, as real episodes do."""
    dreams = Dreams(mdnrnn, starts, temperature, integer(*seed_path), dtype)
    count = len(weights)
    returns, lengths = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    over = torch.zeros(count, dtype=torch.bool)
    sums = torch.zeros(2, mdnrnn.latent, dtype=torch.float64)
    rows, alive = torch.arange(count), torch.ones(count, dtype=torch.bool)
    for step in range(max_steps):
        actions = controller.act(weights, torch.cat([dreams.z, dreams.hidden], 1)[:, : controller.inputs])
        if controller.serve is not None and step < SERVE_STEPS:
            actions[:] = controller.serve
        reward, ended = dreams.step(torch.from_numpy(controller.space.encode(actions)))
        returns[rows] += torch.where(alive, reward.double(), 0.0)
        lengths[rows] += alive
        seen = torch.where(alive[:, None], dreams.z, 0.0)
        sums += torch.stack([seen.sum(0), seen.square().sum(0)])
        alive &= ~ended
        left = int(alive.sum())
        if not left:
            break
        if 2 * left <= len(rows):  # those that are over need not be dreamt on
            over[rows] = ~alive
            dreams.keep(alive)
            rows, weights, alive = rows[alive], weights[alive], alive[alive]
    over[rows] = ~alive
    mean, square = (sums / lengths.sum()).numpy()
    return DreamReturns(returns.numpy(), lengths.numpy(), over.numpy(), mean, np.maximum(square - mean**2, 0))
