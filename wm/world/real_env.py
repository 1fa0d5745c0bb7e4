"""The real environment, observed as a dream is."""

import importlib
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.registration import load_env_creator
from numpy.typing import NDArray

from wm.dreams.env import RENDER, require_render_mode
from wm.dreams.view import Frames, View, to_picture
from wm.envs.pixel_env import PixelEnv
from wm.errors import UsageProblem
from wm.models.mdnrnn.cell import make_cell
from wm.models.vae.inference import InferenceEncoder
from wm.pretrained import TrainedMdnRnn, TrainedVae
from wm.rollouts.agents import auto_fire_for

Info = dict[str, Any]
Observation = NDArray[Any]


class RealEnv(gym.Env[Observation, Any]):
    """The real environment with the observations of a View: V encodes each frame, M remembers what was done.

    Latents and h are clipped to the bounds they have in a dream. In Pong and Breakout the player
    serves. There the serve replaces the first actions of an episode and after a lost life; `info["served"]` says so.
    `render()` returns the frame that V sees, as RGB (S, S, 3). Before its first `reset` it can be pickled and copied;
    later that raises UsageProblem.
    """

    metadata = RENDER

    def __init__(
        self, env: PixelEnv, vae: TrainedVae, mdnrnn: TrainedMdnRnn, view: View, render_mode: str | None = None
    ) -> None:
        require_render_mode(render_mode)
        self.env, self.render_mode = env, render_mode
        self.action_space, self.observation_space = env.action_space, view.space
        self._view, self._space = view, mdnrnn.space
        self._encoder, self._cell = InferenceEncoder(vae.model, 1), make_cell(mdnrnn.model, 1)
        self._initial = mdnrnn.model.initial_state(1)
        self._auto_fire = auto_fire_for(vae.env.spec().fire_action, 1)
        self._module = vae.env.name.rpartition(":")[0]
        self._frame: Frames | None = None
        self._state, self._z, self._info = self._initial, torch.zeros(1, vae.model.latent), Info()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """How it is made again. Copies of a simulator may lose its state without a word, as gymnasium's EzPickle."""
        if self._frame is not None:
            raise UsageProblem(
                "the real environment cannot be pickled or copied after reset(), as its simulator's state cannot; do "
                "so before, or let World.real_env make another."
            )
        if self.spec is None:
            return super().__reduce_ex__(protocol)
        options = {**self.spec.kwargs, "render_mode": self.render_mode}
        return _make_again, (self._module, self.spec.entry_point, options)

    @property
    def steps(self) -> int:
        """The environment's steps in the episode; a repeated action counts as often as it was taken."""
        return self.env.steps

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observation, Info]:
        super().reset(seed=seed)
        frame, self._info = self.env.reset(seed=seed, options=options)
        self._state = self._initial
        if self._auto_fire is not None:
            self._auto_fire.begin(0)
        return self._observe(frame), dict(self._info)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        if self._frame is None:
            raise gym.error.ResetNeeded("call reset before step")
        # A copy, as the caller's array must stay what it was.
        actions = self._space.validated(action)[None].copy()  # a serve replaces it
        served = False
        if self._auto_fire is not None:
            served = bool(self._auto_fire.serve(actions, [self._info])[0])
        encoded = torch.from_numpy(self._space.encode(actions))
        self._state = self._cell.step(self._z, encoded, self._state)
        frame, reward, terminated, truncated, self._info = self.env.step(actions[0])
        info = dict(self._info) if self._auto_fire is None else {**self._info, "served": served}
        return self._observe(frame), reward, terminated, truncated, info

    def render(self) -> Frames | None:
        if self.render_mode is None:
            return None
        if self._frame is None:
            raise gym.error.ResetNeeded("call reset before render")
        return to_picture(self._frame)

    def close(self) -> None:
        self.env.close()

    def _observe(self, frame: Frames) -> Observation:
        self._frame = frame
        self._z = self._encoder.encode(torch.from_numpy(frame[None]))
        # A copy: the frame stays here for render().
        return frame.copy() if self._view.kind == "pixels" else self._view.observe(self._z, self._state[0])[0]


def _make_again(module: str, entry_point: str, options: Info) -> Any:
    """What was pickled, where the module that registers its environment had been imported."""
    if module:
        importlib.import_module(module)
    return load_env_creator(entry_point)(**options)
