"""Agents that play several episodes at a time.

V + M + C: V encodes the frames of all environments, C acts on [mean z, h], M updates h; without M, C acts on the mean z
alone. Dreamer: its actor acts on the posterior of its world model. Both press FIRE where the game demands it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.models.controller import SERVE_STEPS, Controller
from wm.models.dreamer.agent import Dreamer
from wm.models.mdnrnn.cell import make_cell
from wm.models.mdnrnn.predictor import Predictor
from wm.models.vae.inference import InferenceEncoder
from wm.models.vae.networks import Vae
from wm.rollouts.loop import EpisodeJob


class AutoFire:
    """Puts the ball into play with `action` after a reset and after each lost life that the environment reports."""

    def __init__(self, action: int, num_envs: int) -> None:
        self._action = action
        self._serving = [0] * num_envs
        self._lives: list[int | None] = [None] * num_envs

    def begin(self, env_index: int) -> None:
        """A new episode."""
        self._serving[env_index], self._lives[env_index] = SERVE_STEPS, None

    def serve(self, actions: NDArray[Any], infos: Sequence[dict[str, Any]]) -> None:
        """Replace the actions of environments whose ball is not in play."""
        for env_index, info in enumerate(infos):
            lives, before = info.get("lives"), self._lives[env_index]
            if lives is not None and before is not None and lives < before:
                self._serving[env_index] = SERVE_STEPS
            self._lives[env_index] = lives
            if self._serving[env_index] > 0:
                self._serving[env_index] -= 1
                actions[env_index] = self._action


def auto_fire_for(action: int | None, num_envs: int) -> AutoFire | None:
    """An AutoFire for games in which the player serves; None elsewhere."""
    return None if action is None else AutoFire(action, num_envs)


class VmcAgent:
    """Acts in `num_envs` environments, each with the parameters of its job's candidate.

    `vae` is None when observations are latents already (in a dream), `mdnrnn` when C has no memory.
    """

    def __init__(
        self,
        vae: Vae | None,
        mdnrnn: Predictor | None,
        controller: Controller,
        candidates: NDArray[np.float32],
        num_envs: int,
    ) -> None:
        self.num_envs = num_envs
        self.controller = controller
        self._encoder = None if vae is None else InferenceEncoder(vae, num_envs)
        self._cell = None if mdnrnn is None else make_cell(mdnrnn, num_envs)
        self._candidates = torch.from_numpy(np.array(candidates, np.float32))
        self._weights = torch.zeros(num_envs, controller.parameters)
        self._state = (torch.zeros(num_envs, 0),) if mdnrnn is None else mdnrnn.initial_state(num_envs)
        self._auto_fire = auto_fire_for(controller.serve, num_envs)

    @property
    def space(self) -> ActionSpace:
        """Its action space."""
        return self.controller.space

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        """A new episode: M's state starts at zero."""
        with torch.inference_mode():
            self._weights[env_index] = self._candidates[job.candidate]
            for part in self._state:
                part[env_index] = 0
        if self._auto_fire is not None:
            self._auto_fire.begin(env_index)

    @torch.inference_mode()
    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> NDArray[Any]:
        """Actions for (num_envs, S, S, C) uint8 frames, or (num_envs, Z) latents."""
        observations = torch.from_numpy(frames)
        z = observations if self._encoder is None else self._encoder.encode(observations)
        actions = self.controller.act(self._weights, torch.cat([z, self._state[0]], 1))
        if self._auto_fire is not None:
            self._auto_fire.serve(actions, infos)
        if self._cell is not None:
            encoded = torch.from_numpy(self.controller.space.encode(actions))
            for part, new in zip(self._state, self._cell.step(z, encoded, self._state), strict=True):
                part.copy_(new)
        return actions


class DreamerAgent:
    """Acts in `num_envs` environments, always with the likeliest latents and action, so that an environment's actions
    depend neither on chance nor on the others. `serve` is the action that puts a ball into play, if there is one."""

    def __init__(self, model: Dreamer, space: ActionSpace, num_envs: int, serve: int | None = None) -> None:
        self.num_envs, self.space, self._model = num_envs, space, model
        self._state, self._actions = model.initial(num_envs)
        self._device = self._actions.device
        self._first = torch.ones(num_envs, device=self._device)
        self._auto_fire = auto_fire_for(serve, num_envs)

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        """A new episode: the recurrent state is reset."""
        self._first[env_index] = 1
        if self._auto_fire is not None:
            self._auto_fire.begin(env_index)

    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> NDArray[Any]:
        """Actions for (num_envs, S, S, C) uint8 frames."""
        inputs = torch.from_numpy(frames).to(self._device)
        self._actions, self._state = self._model.act(inputs, self._state, self._actions, self._first, None)
        self._first.zero_()
        actions = self.space.decode(self._actions.cpu().numpy())
        if self._auto_fire is not None:
            self._auto_fire.serve(actions, infos)
            self._actions = torch.from_numpy(self.space.encode(actions)).to(self._device)
        return actions
