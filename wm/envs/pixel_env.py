"""A gymnasium environment with square uint8 frames."""

from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from wm.envs.checked_env import CheckedEnv
from wm.envs.labels import LIVES, Probe
from wm.envs.observation import Mask, Observation
from wm.envs.resize import AreaResize, Frame
from wm.envs.rgb import to_rgb
from wm.errors import EnvironmentFault


class Renderer(Protocol):
    """Draws the state of one environment."""

    def begin(self) -> None:
        """A new episode has begun."""

    def frame(self, observation: Any) -> Frame:
        """The frame after the step that returned `observation`, (size, size, 3 or 1); the caller owns its memory."""


class GymnasiumRenderer:
    """Gymnasium's image: the observation if `observed`, else what `render()` returns, which is `rendered` last."""

    def __init__(self, env: CheckedEnv, name: str, size: int, observed: bool) -> None:
        self.env, self.size, self.observed = env, size, observed
        self._what = f"{name}: its observation" if observed else f"{name}: the result of render()"
        self._resize: AreaResize | None = None
        self.rendered: Frame | None = None

    def begin(self) -> None:
        """Nothing to prepare."""

    def frame(self, observation: Any) -> Frame:
        """The image, shrunk."""
        if self.observed:  # of others, the environment checks what it renders
            self.env.require_shape(observation, "its observation")
        image = to_rgb(observation if self.observed else self.env.render(), self._what)
        self.rendered = None if self.observed else image
        if self._resize is None or self._resize.shape != image.shape:
            height, width, channels = image.shape
            self._resize = AreaResize(height, width, channels, self.size)
        return self._resize(image)


class PixelEnv(gym.Env[Frame, Any]):
    """A gymnasium environment whose observations are (size, size, 3 or 1) uint8 frames from a renderer.

    `observation` is the transform of the renderer's images and `mask` what frames hide (wm/envs/observation.py). With
    `action_repeat`, a step takes that many of the environment's: rewards add up, and the last image is observed. With a
    probe, `info["labels"]` holds positions and speeds that the environment knows, for linear probes only; with
    `counts_lives` its last value are the lives that `info` has. An environment's own key `labels` means nothing here,
    and is left out.
    `frame_source` says where its frames come from: observation, render or renderer.
    """

    def __init__(
        self,
        env: CheckedEnv,
        renderer: Renderer,
        *,
        size: int,
        gray: bool,
        observation: str,
        mask: str = "none",
        probe: Probe | None,
        counts_lives: bool = False,
        action_repeat: int = 1,
    ) -> None:
        self.env, self.renderer, self._repeat = env, renderer, action_repeat
        self._observe, self._mask = Observation(observation, gray, action_repeat), Mask(mask, observation)
        self.size, self.gray = size, gray
        self.action_space = env.action_space
        self.observation_space = gym.spaces.Box(0, 255, (size, size, 1 if gray else 3), np.uint8)
        self._observation: Any = None
        self._counts_lives = counts_lives
        self.label_names: tuple[str, ...] = (*(probe.names if probe else ()), *[LIVES] * counts_lives)
        self._labels = probe.bind(env.unwrapped) if probe else None
        self.frame_source = "renderer"
        if isinstance(renderer, GymnasiumRenderer):
            self.frame_source = "observation" if renderer.observed else "render"

    @property
    def steps(self) -> int:
        """Steps of the environment in this episode; a repeated action counts as often as it was taken."""
        return self.env.steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.renderer.begin()
        self._observe.begin()
        self._mask.begin(seed)
        self._observation = observation
        return self._frame(observation), self._labelled(info, observation)

    def step(self, action: Any) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        for _ in range(self._repeat - 1):
            if terminated or truncated:
                break
            observation, next_reward, terminated, truncated, info = self.env.step(action)
            reward += next_reward
        self._observation = observation
        return self._frame(observation), reward, terminated, truncated, self._labelled(info, observation)

    def screen(self) -> Frame:
        """The environment's picture at its own resolution, (H, W, 3): what it renders, or without that its latest
        observation, also where it only says that it renders. It is rendered once a step: LunarLander's flames age
        whenever they are drawn."""
        if isinstance(self.renderer, GymnasiumRenderer) and self.renderer.rendered is not None:
            return self.renderer.rendered
        if self.env.render_mode == "rgb_array":
            try:
                return to_rgb(self.env.render(), "the result of render()")
            except EnvironmentFault:
                # It says that it renders and does not, so its observation is its picture.
                if self.frame_source != "observation":
                    raise
        return to_rgb(self._observation, "an observation")

    def close(self) -> None:
        self.env.close()

    def _labelled(self, info: dict[str, Any], observation: Any) -> dict[str, Any]:
        if self.label_names:
            read = self._labels(observation) if self._labels else ()
            info["labels"] = [*read, info["lives"]] if self._counts_lives else read
        elif "labels" in info:
            info = {key: value for key, value in info.items() if key != "labels"}
        return info

    def _frame(self, observation: Any) -> Frame:
        return self._mask(self._observe(self.renderer.frame(observation)))
