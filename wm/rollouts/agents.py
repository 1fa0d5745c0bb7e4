"""Agents that play several episodes at a time.

V + M + C: V encodes the frames of all environments, C acts on [mean z, h], M updates h; without M, C acts on the mean z
alone. Dreamer: its actor acts on the posterior of its world model. Both press FIRE where the game demands it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.actions import ActionSpace
from wm.errors import BadData
from wm.models.controller import SERVE_STEPS, Controller
from wm.models.dreamer.agent import Dreamer
from wm.models.mdnrnn.cell import make_cell
from wm.models.mdnrnn.predictor import Predictor
from wm.models.vae.inference import InferenceEncoder
from wm.models.vae.networks import Vae
from wm.rollouts.loop import EpisodeJob
from wm.rollouts.policies import HOLD, random_action
from wm.seeding import generator


class AutoFire:
    """Puts the ball into play with `action` after a reset and after each lost life that the environment reports."""

    def __init__(self, action: int, num_envs: int) -> None:
        self._action = action
        self._serving = [0] * num_envs
        self._lives: list[int | None] = [None] * num_envs

    def begin(self, env_index: int) -> None:
        """A new episode."""
        self._serving[env_index], self._lives[env_index] = SERVE_STEPS, None

    def serve(self, actions: NDArray[Any], infos: Sequence[dict[str, Any]]) -> NDArray[np.bool_]:
        """Replace the actions of environments whose ball is not in play. Returns which, (num_envs,)."""
        served = np.zeros(len(infos), bool)
        for env_index, info in enumerate(infos):
            lives, before = info.get("lives"), self._lives[env_index]
            if lives is not None and before is not None and lives < before:
                self._serving[env_index] = SERVE_STEPS
            self._lives[env_index] = lives
            if self._serving[env_index] > 0:
                self._serving[env_index] -= 1
                actions[env_index] = self._action
                served[env_index] = True
        return served

    def state(self, env_index: int) -> list[int | None]:
        """What `restore` needs to go on with this environment's episode."""
        return [self._serving[env_index], self._lives[env_index]]

    def restore(self, env_index: int, state: Sequence[int | None]) -> None:
        """Continue an episode from what `state` returned."""
        serving, self._lives[env_index] = state
        self._serving[env_index] = serving or 0


def auto_fire_for(action: int | None, num_envs: int) -> AutoFire | None:
    """An AutoFire for games in which the player serves; None elsewhere."""
    return None if action is None else AutoFire(action, num_envs)


class RandomHolds:
    """Replaces a `share` of the actions of a `controller` by random ones, each held for some steps."""

    def __init__(self, controller: Controller, share: float, num_envs: int) -> None:
        length = (HOLD[0] + HOLD[1]) / 2
        self._begins = share / (share + (1 - share) * length)  # the probability to begin one where none is held
        self._space, self._among, self._steps_left = controller.space, controller.ordered, [0] * num_envs
        self._actions: list[Any] = [None] * num_envs
        # Replaced at each episode's start; these only fill the rows of the batch.
        self._random = [generator(0, "holds") for _ in range(num_envs)]

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        """A new episode."""
        self._steps_left[env_index] = 0
        self._random[env_index] = generator(job.seed, "holds")

    def replace(self, actions: NDArray[Any]) -> None:
        """Put the held actions in the place of an agent's (num_envs, ...)."""
        for env_index, random in enumerate(self._random):
            if not self._steps_left[env_index]:
                if random.random() >= self._begins:
                    continue
                self._steps_left[env_index] = int(random.integers(HOLD[0], HOLD[1] + 1))
                self._actions[env_index] = random_action(self._space, random, self._among)
            self._steps_left[env_index] -= 1
            actions[env_index] = self._actions[env_index]


def _require_finite(*values: Tensor) -> None:
    """Raise BadData for values that are no numbers: of finite weights that are too large to compute with. An agent that
    computes with them still acts, and its score looks like any other."""
    if not math.isfinite(sum(value.sum().item() for value in values)):
        raise BadData(
            "the agent's weights are too large: its networks compute values that are not finite; expected numbers, so "
            "restore its models or train them again."
        )


class VmcAgent:
    """Acts in `num_envs` environments, each with the parameters of its job's candidate.

    `vae` is None when observations are latents already (in a dream), `mdnrnn` when C has no memory. A C that acts by
    samples draws those of an episode from the seed of its job. `random_share` of the actions are random. After
    `decide`, `outputs`, `choices` and `served` hold C's outputs, what it chose, and in which environments a serve
    replaced that.
    """

    def __init__(
        self,
        vae: Vae | None,
        mdnrnn: Predictor | None,
        controller: Controller,
        candidates: NDArray[np.float32],
        num_envs: int,
        random_share: float = 0.0,
    ) -> None:
        self.num_envs = num_envs
        self.controller = controller
        self._holds = RandomHolds(controller, random_share, num_envs) if random_share else None
        self._encoder = None if vae is None else InferenceEncoder(vae, num_envs)
        self._cell = None if mdnrnn is None else make_cell(mdnrnn, num_envs)
        # A copy: the caller's candidates may change before the episodes end.
        self._candidates = torch.from_numpy(np.array(candidates, np.float32))
        single = controller.layers and len(candidates) == 1
        self._network = controller.pack(self._candidates[0], num_envs) if single else None
        self._weights = torch.zeros(num_envs, 0 if single else controller.parameters)
        self._z: Tensor | None = None
        self._z_before: Tensor | None = None
        self._starts = torch.ones(num_envs, 1, dtype=torch.bool)  # no step before: the difference is zero
        self._action_before = torch.zeros(num_envs, controller.space.width)
        self._state = (torch.zeros(num_envs, 0),) if mdnrnn is None else mdnrnn.initial_state(num_envs)
        self._auto_fire = auto_fire_for(controller.serve, num_envs)
        self.randoms = [generator(0, "actions") for _ in range(num_envs)] if controller.sampled else None
        self.outputs, self.choices = torch.zeros(2, num_envs, 0)
        self.served = np.zeros(num_envs, bool)

    @property
    def space(self) -> ActionSpace:
        """Its action space."""
        return self.controller.space

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        """A new episode: M's state starts at zero."""
        with torch.inference_mode():
            if self._network is None:
                self._weights[env_index] = self._candidates[job.candidate]
            self._starts[env_index] = True
            self._action_before[env_index] = 0
            for part in self._state:
                part[env_index] = 0
        if self._auto_fire is not None:
            self._auto_fire.begin(env_index)
        if self._holds is not None:
            self._holds.begin(env_index, job)
        if self.randoms is not None:
            self.randoms[env_index] = generator(job.seed, "actions")

    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> NDArray[Any]:
        """Actions for (num_envs, S, S, C) uint8 frames, or (num_envs, Z) latents."""
        return self.decide(self.observe(frames), infos)

    @torch.inference_mode()
    def observe(self, frames: NDArray[Any]) -> Tensor:
        """C's inputs (num_envs, inputs) for these frames or latents."""
        observations = torch.from_numpy(frames)
        self._z = z = observations if self._encoder is None else self._encoder.encode(observations)
        z_before = z if self._z_before is None else torch.where(self._starts, z, self._z_before)
        return self.controller.features(z, z_before, self._action_before, self._state[0])

    @torch.inference_mode()
    def decide(self, features: Tensor, infos: Sequence[dict[str, Any]]) -> NDArray[Any]:
        """Actions for the inputs that `observe` has returned last. M's state and the inputs of the next step follow."""
        assert self._z is not None
        self.outputs = self._network(features) if self._network else self.controller.evaluate(self._weights, features)
        _require_finite(features, self.outputs)
        self.choices = self.controller.choose(self.outputs, self.randoms)
        actions = self.controller.actions(self.choices)
        if self._holds is not None:
            self._holds.replace(actions)
        if self._auto_fire is not None:
            self.served = self._auto_fire.serve(actions, infos)
        encoded = torch.from_numpy(self.controller.space.encode(actions))
        if self._cell is not None:
            for part, new in zip(self._state, self._cell.step(self._z, encoded, self._state), strict=True):
                # In place: rows that began meanwhile were set in these very tensors.
                part.copy_(new)
        # A clone: where latents are given instead of frames, their memory is the caller's.
        self._z_before, self._action_before = self._z.clone(), encoded
        self._starts[:] = False
        return actions

    def episode_state(self, env_index: int) -> dict[str, Any]:
        """What `restore_episode` needs to go on with this environment's episode, as plain values."""
        state: dict[str, Any] = {
            "action": self._action_before[env_index].tolist(),
            "memory": [part[env_index].tolist() for part in self._state],
        }
        if not self._starts[env_index]:
            assert self._z_before is not None
            state["z"] = self._z_before[env_index].tolist()
        return state if self._auto_fire is None else state | {"fire": self._auto_fire.state(env_index)}

    @torch.inference_mode()
    def restore_episode(self, env_index: int, state: dict[str, Any]) -> None:
        """Continue an episode from what `episode_state` returned."""
        self._action_before[env_index] = torch.tensor(state["action"])
        for part, values in zip(self._state, state["memory"], strict=True):
            part[env_index] = torch.tensor(values)
        self._starts[env_index] = "z" not in state
        if "z" in state:
            z = torch.tensor(state["z"])
            if self._z_before is None:
                self._z_before = torch.zeros(self.num_envs, len(z))
            self._z_before[env_index] = z
        if self._auto_fire is not None:
            self._auto_fire.restore(env_index, state["fire"])


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
        _require_finite(self._state.features, self._actions)
        self._first.zero_()
        actions = self.space.decode(self._actions.cpu().numpy())
        if self._auto_fire is not None:
            self._auto_fire.serve(actions, infos)
            self._actions = torch.from_numpy(self.space.encode(actions)).to(self._device)
        return actions
