"""M as an environment. A dream starts from a real encoded frame; M samples each next z, the reward and the end.

`Dreams` is the vectorised core, `DreamEnv` and `DreamVectorEnv` are gymnasium's interfaces over it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from torch import Tensor

from wm.actions import ActionSpace
from wm.arguments import as_array
from wm.dreams.view import Frames, View, to_picture
from wm.errors import UsageProblem, shown
from wm.models.mdnrnn.cell import make_cell
from wm.models.mdnrnn.predictor import Predictor, Sample, State

Info = dict[str, Any]
Observation = NDArray[Any]
RENDER: Info = {"render_modes": ["rgb_array"], "render_fps": 30}  # as our films


@dataclass(frozen=True)
class InitialStates:
    """States in which dreams start: N real latents z (N, Z) and M's state there, with the latent and the encoded action
    of the step before (N, Z) and (N, A): at an episode's start z itself, and zeros. `low` and `high` (Z,) bound a
    dream's latents. M was trained on real latents only: without bounds, after 300 steps of CarRacing latents had 150
    times the variance of real ones, with them 2.6 times."""

    z: Tensor
    state: State
    low: Tensor
    high: Tensor
    z_before: Tensor
    action_before: Tensor

    @classmethod
    def at_start(cls, mdnrnn: Predictor, z: Tensor, action_width: int, low: Tensor, high: Tensor) -> "InitialStates":
        """The starts of episodes: nothing came before these latents."""
        return cls(z, mdnrnn.initial_state(len(z)), low, high, z, torch.zeros(len(z), action_width))

    @classmethod
    def joined(cls, parts: Sequence["InitialStates"]) -> "InitialStates":
        """The states of all parts, which have the same bounds."""
        state = tuple(torch.cat(tensors) for tensors in zip(*(part.state for part in parts), strict=True))
        z, z_before, action_before = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("z", "z_before", "action_before")
        )
        return cls(z, state, parts[0].low, parts[0].high, z_before, action_before)

    def __len__(self) -> int:
        return len(self.z)

    @property
    def range(self) -> tuple[Tensor, Tensor]:
        """The lowest and the highest value of each latent in a dream, (Z,) each: these states may exceed the bounds."""
        return torch.minimum(self.low, self.z.amin(0)), torch.maximum(self.high, self.z.amax(0))

    def take(self, rows: NDArray[np.int64]) -> "InitialStates":
        """A selection, with repetition allowed."""
        state = tuple(part[rows] for part in self.state)
        return replace(
            self, z=self.z[rows], state=state, z_before=self.z_before[rows], action_before=self.action_before[rows]
        )


@torch.inference_mode()
def warm_up(mdnrnn: Predictor, z: Tensor, actions: Tensor, low: Tensor, high: Tensor) -> InitialStates:
    """InitialStates after M has processed real contexts: z (N, L + 1, Z) and encoded actions (N, L, A). L may be 0."""
    if not actions.shape[1]:
        return InitialStates.at_start(mdnrnn, z[:, 0], actions.shape[2], low, high)
    cell, state = make_cell(mdnrnn, len(z)), mdnrnn.initial_state(len(z))
    for step in range(actions.shape[1]):
        state = cell.step(z[:, step], actions[:, step], state)
    return InitialStates(z[:, -1], state, low, high, z[:, -2], actions[:, -1])


class Dreams:
    """N dreams at a time. `step` advances all of them; the caller keeps track of those that have ended. Matrix products
    are computed in `dtype`."""

    def __init__(
        self,
        mdnrnn: Predictor,
        initial: InitialStates,
        temperature: float,
        seed: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.temperature = temperature
        self._packed = mdnrnn, len(initial), dtype
        self._cell = make_cell(*self._packed)
        self._random = torch.Generator().manual_seed(seed)
        self.z, self.state = initial.z, initial.state
        self._bounds = initial.low, initial.high

    def __getstate__(self) -> dict[str, Any]:
        """Without the weights that are packed for this process alone."""
        state = {name: value for name, value in vars(self).items() if name != "_cell"}
        return state | {"_random": self._random.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        random = torch.Generator()
        random.set_state(state["_random"])
        vars(self).update(state, _random=random, _cell=make_cell(*state["_packed"]))

    @property
    def hidden(self) -> Tensor:
        """M's h, (N, H)."""
        return self.state[0]

    def keep(self, rows: Tensor) -> None:
        """Drop all dreams but these, (N,) bool."""
        self.z, self.state = self.z[rows], tuple(part[rows] for part in self.state)

    def restart(self, rows: NDArray[np.int64], initial: InitialStates) -> None:
        """Restart the dreams of these rows, one initial state each."""
        # Clones: whoever plays may keep the tensors of earlier steps.
        z, *state = (part.clone() for part in (self.z, *self.state))
        for part, start in zip((z, *state), (initial.z, *initial.state), strict=True):
            part[rows] = start
        self.z, self.state = z, tuple(state)

    def advance(self, actions: Tensor) -> Sample:
        """Encoded actions (N, A) -> the next z, the expected reward and the probability that the episode ends here.
        Updates `z`."""
        sample, self.state = self._cell.advance(
            self.z, actions, self.state, self.temperature, self._random, self._bounds
        )
        self.z = sample.z
        return sample

    @torch.inference_mode()
    def step(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded actions (N, A) -> rewards (N,), and whether the episode ends here, (N,) bool. Updates `z`."""
        sample = self.advance(actions)
        return sample.reward, torch.rand(len(sample.end), generator=self._random) < sample.end


@dataclass(frozen=True)
class DreamConfig:
    """What the dreams of an environment have in common: M, the initial states, the encoding of actions, the
    temperature, and the steps after which a dream is truncated."""

    mdnrnn: Predictor
    initial_states: InitialStates
    space: ActionSpace
    temperature: float
    max_steps: int
    dtype: torch.dtype = torch.float32

    def reset(self, random: np.random.Generator, count: int) -> Dreams:
        """`count` dreams from random initial states."""
        initial = self.sample_states(random, count)
        # 62 bits: a seed that torch's generator takes as well as numpy's.
        return Dreams(self.mdnrnn, initial, self.temperature, int(random.integers(1 << 62)), self.dtype)

    def sample_states(self, random: np.random.Generator, count: int) -> InitialStates:
        """Random initial states."""
        return self.initial_states.take(random.integers(len(self.initial_states), size=count))

    def encode(self, actions: Any) -> Tensor:
        """Actions (N, ...) as M takes them, (N, A). Raises UsageProblem for what is no action."""
        chosen = as_array("actions", actions)
        self.space.require(chosen)
        return torch.from_numpy(self.space.encode(chosen))


def require_render_mode(render_mode: str | None) -> None:
    """Raise UsageProblem for another render mode than None and rgb_array."""
    if render_mode is not None and (not isinstance(render_mode, str) or render_mode not in RENDER["render_modes"]):
        raise UsageProblem(f"render_mode is {shown(render_mode)}; expected 'rgb_array' or None.")


def _view_of(config: DreamConfig, view: View | None, render_mode: str | None) -> View:
    """The view, or one of latents. Raises UsageProblem for a render mode that is none, or without V to render with."""
    view = view or View.of_latents("z", config.mdnrnn, *config.initial_states.range)
    require_render_mode(render_mode)
    if render_mode and view.vae is None:
        raise UsageProblem("render_mode is 'rgb_array', which needs V; give the dream a View with one.")
    return view


class DreamEnv(gym.Env[Observation, Any]):
    """One dream as a gymnasium environment. `view` decides what is observed, by default latents (Z,); `action_space` is
    the real environment's. `info["hidden"]` is M's h. `render()` returns V's picture (S, S, 3)."""

    metadata = RENDER

    def __init__(
        self,
        config: DreamConfig,
        action_space: gym.Space[Any],
        view: View | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._view, self.render_mode = _view_of(config, view, render_mode), render_mode
        self.action_space, self.observation_space = action_space, self._view.space
        self._config = config
        self._dreams: Dreams | None = None
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observation, Info]:
        super().reset(seed=seed)
        self._dreams, self._steps = self._config.reset(self.np_random, 1), 0
        return self._observe(self._dreams)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        if self._dreams is None:
            raise gym.error.ResetNeeded("call reset before step")
        reward, ended = self._dreams.step(self._config.encode(self._config.space.validated(action)[None]))
        self._steps += 1
        terminated = bool(ended[0])
        truncated = not terminated and self._steps >= self._config.max_steps
        observation, info = self._observe(self._dreams)
        return observation, float(reward[0]), terminated, truncated, info

    def render(self) -> Frames | None:
        if self.render_mode is None:
            return None
        if self._dreams is None:
            raise gym.error.ResetNeeded("call reset before render")
        return to_picture(self._view.frames(self._dreams.z)[0])

    def _observe(self, dreams: Dreams) -> tuple[Observation, Info]:
        # A copy, so that whoever writes into it does not change the dream's state.
        return self._view.observe(dreams.z, dreams.hidden)[0], {"hidden": dreams.hidden[0].numpy().copy()}


class DreamVectorEnv(gym.vector.VectorEnv[Observation, Any, NDArray[Any]]):
    """`num_envs` dreams as a gymnasium vector environment, observed as in DreamEnv.

    A dream that has ended is reset by the next step, whose reward is 0 (gymnasium's NEXT_STEP). With
    `AutoresetMode.SAME_STEP` the step that ends it resets it, and has the last observation in `info["final_obs"]`.
    """

    def __init__(
        self,
        config: DreamConfig,
        action_space: gym.Space[Any],
        num_envs: int,
        view: View | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        self._view, self.render_mode = _view_of(config, view, render_mode), render_mode
        if not isinstance(autoreset_mode, AutoresetMode) or autoreset_mode == AutoresetMode.DISABLED:
            given = autoreset_mode if isinstance(autoreset_mode, AutoresetMode) else shown(autoreset_mode)
            raise UsageProblem(f"autoreset_mode is {given}; expected NEXT_STEP or SAME_STEP of AutoresetMode.")
        self.num_envs = num_envs
        self.metadata = RENDER | {"autoreset_mode": autoreset_mode}
        self.single_action_space, self.single_observation_space = action_space, self._view.space
        self.action_space = gym.vector.utils.batch_space(action_space, num_envs)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self._config, self._same_step = config, autoreset_mode == AutoresetMode.SAME_STEP
        self._dreams: Dreams | None = None
        self._steps = np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, bool)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observation, Info]:
        super().reset(seed=seed, options=options)
        self._dreams = self._config.reset(self.np_random, self.num_envs)
        self._steps[:] = 0
        self._ended[:] = False
        return self._observe(self._dreams)

    def step(self, actions: Any) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        if self._dreams is None:
            raise gym.error.ResetNeeded("call reset before step")
        reward, ended = self._dreams.step(self._encode(actions))
        # gymnasium's rewards are float64.
        rewards, terminated = reward.numpy().astype(np.float64), ended.numpy()
        self._steps += 1
        if not self._same_step and self._ended.any():
            rewards[self._ended], terminated[self._ended] = 0.0, False
            self._restart(self._dreams)
        truncated = ~terminated & (self._steps >= self._config.max_steps)
        self._ended = terminated | truncated
        final = self._final(self._dreams) if self._same_step and self._ended.any() else {}
        observations, info = self._observe(self._dreams)
        return observations, rewards, terminated, truncated, info | final

    def _encode(self, actions: Any) -> Tensor:
        encoded = self._config.encode(actions)
        if len(encoded) != self.num_envs:
            raise UsageProblem(f"{len(encoded)} actions are given for {self.num_envs} dreams; expected one for each.")
        return encoded

    def _final(self, dreams: Dreams) -> Info:
        """The last observations of the dreams that have ended, which are then restarted."""
        observations, info = self._observe(dreams)
        rows, last = np.flatnonzero(self._ended), np.full(self.num_envs, None, object)
        for row in rows:
            last[row] = observations[row]
        ended = self._ended.copy()
        self._restart(dreams)
        final_info = {"hidden": info["hidden"], "_hidden": ended.copy()}
        return {"final_obs": last, "_final_obs": ended, "final_info": final_info, "_final_info": ended.copy()}

    def _restart(self, dreams: Dreams) -> None:
        """Restart the dreams that have ended."""
        rows = np.flatnonzero(self._ended)
        dreams.restart(rows, self._config.sample_states(self.np_random, len(rows)))
        self._steps[rows] = 0

    def render(self) -> tuple[Frames, ...] | None:
        if self.render_mode is None:
            return None
        if self._dreams is None:
            raise gym.error.ResetNeeded("call reset before render")
        return tuple(map(to_picture, self._view.frames(self._dreams.z)))

    def _observe(self, dreams: Dreams) -> tuple[Observation, Info]:
        info = {"hidden": dreams.hidden.numpy().copy(), "_hidden": np.ones(self.num_envs, bool)}
        return self._view.observe(dreams.z, dreams.hidden), info
