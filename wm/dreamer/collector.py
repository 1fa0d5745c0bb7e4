"""Acting: steps of several environments with the current actor, stored in the replay."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.actions import ActionSpace
from wm.envs.registration import guarded
from wm.envs.registry import EnvConfig
from wm.episodes.replay import ReplayWriter
from wm.models.dreamer.agent import Dreamer
from wm.models.dreamer.rssm import State
from wm.rollouts.agents import auto_fire_for
from wm.seeding import episode_seed, integer


class ActingState(NamedTuple):
    """Inputs of the next step: frames, the previous recurrent state, the actions since, and which frames are an
    episode's first."""

    frames: NDArray[np.uint8]
    state: State
    actions: Tensor
    first: Tensor


class Collector:
    """Steps `num_envs` environments and writes every step to the replay.

    Seeds of episodes and noise are functions of how many episodes and steps there were, so nothing random is saved.
    """

    def __init__(
        self, model: Dreamer, env: EnvConfig, writer: ReplayWriter, num_envs: int, seed: int, device: torch.device
    ) -> None:
        self._model, self._env, self._writer = model, env, writer
        self._seed, self._device = seed, device
        self._envs = [env.make() for _ in range(num_envs)]
        self.space = ActionSpace.of(self._envs[0].action_space)
        self.episodes_started = 0
        self._returns = np.zeros(num_envs)
        self._auto_fire = auto_fire_for(env.spec().fire_action, num_envs)
        self._infos: list[dict[str, Any]] = [{} for _ in self._envs]
        self._noise = torch.Generator(device)

    def reset(self) -> ActingState:
        """The first frames of a new episode in every environment."""
        config, count = self._model.config, len(self._envs)
        frames = np.zeros((count, config.size, config.size, config.channels), np.uint8)
        for env_index in range(count):
            frames[env_index] = self._reset(env_index)
        state, actions = self._model.initial(count)
        return ActingState(frames, state, actions, torch.ones(count, device=self._device))

    def _reset(self, env_index: int) -> NDArray[np.uint8]:
        # The number of the episode, and not the step: the seeds then do not depend on how long episodes last.
        seed = episode_seed("train", self._seed, "dreamer", self.episodes_started)
        self.episodes_started += 1
        frame: NDArray[np.uint8]
        frame, self._infos[env_index] = guarded(self._env.name, partial(self._envs[env_index].reset, seed=seed))
        if self._auto_fire is not None:
            self._auto_fire.begin(env_index)
        self._returns[env_index] = 0
        self._writer.start_episode(env_index, frame, seed)
        return frame

    def step(self, acting: ActingState, steps: int) -> tuple[ActingState, list[float]]:
        """One step of every environment, after `steps` steps in all; also the returns of the episodes that ended."""
        # Noise is a function of the step, so that a resumed training acts as the one before.
        self._noise.manual_seed(integer(self._seed, "dreamer", "act", steps))
        inputs = torch.from_numpy(acting.frames).to(self._device)
        encoded, state = self._model.act(inputs, acting.state, acting.actions, acting.first, self._noise)
        actions = self.space.decode(encoded.cpu().numpy())
        if self._auto_fire is not None:
            self._auto_fire.serve(actions, self._infos)
            encoded = torch.from_numpy(self.space.encode(actions)).to(self._device)
        # A copy: an ActingState is a value, which does not change once it is returned.
        frames, first = acting.frames.copy(), np.zeros(len(self._envs), np.float32)
        returns: list[float] = []
        for env_index, env in enumerate(self._envs):
            action = actions[env_index].item() if self.space.discrete else actions[env_index]
            result = guarded(self._env.name, partial(env.step, action))
            frames[env_index], reward, terminated, truncated, self._infos[env_index] = result
            self._writer.add_step(env_index, frames[env_index], action, float(reward), bool(terminated))
            self._returns[env_index] += float(reward)
            if terminated or truncated:
                returns.append(float(self._returns[env_index]))
                frames[env_index] = self._reset(env_index)
                first[env_index] = 1
        return ActingState(frames, state, encoded, torch.from_numpy(first).to(self._device)), returns

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
