"""Tiny-v0: a dot that the player moves left and right on a 40x40 screen; reward near the middle, 24 steps at most."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np


class TinyEnv(gym.Env):  # type: ignore[type-arg]
    observation_space = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x = int(self.np_random.integers(6, 34))
        return self._frame(), {}

    def step(self, action: Any) -> Any:
        self.x += 2 * (int(action) - 1) + int(self.np_random.integers(-1, 2))
        fell = not 3 <= self.x <= 36
        self.x = int(np.clip(self.x, 3, 36))
        return self._frame(), -5.0 if fell else 1.0 - abs(self.x - 20) / 10, fell, False, {}

    def _frame(self) -> Any:
        frame = np.full((40, 40, 3), 30, np.uint8)
        frame[17:23, self.x - 3 : self.x + 3] = (200, 120, 40)
        return frame


if "Tiny-v0" not in gym.registry:
    gym.register("Tiny-v0", TinyEnv, max_episode_steps=24)


class SteeredEnv(TinyEnv):
    """Tiny with a box of actions, whose second dimension is one-sided as a pedal's: how fast the dot moves."""

    action_space = gym.spaces.Box(np.array([-1, 0], np.float32), np.ones(2, np.float32))

    def step(self, action: Any) -> Any:
        return super().step(1 + round(float(action[0]) * (0.5 + float(action[1]))))


if "Steered-v0" not in gym.registry:
    gym.register("Steered-v0", SteeredEnv, max_episode_steps=24)


class FragileEnv(TinyEnv):
    """Tiny, but it breaks as the variable TINY_BREAK says: `<how>:<seed or any>:<marker file>`, separated by commas.
    The marker is made when it breaks; with a marker of its own, it breaks once. How: raise, die, hang."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        for fault in os.environ["TINY_BREAK"].split(","):
            how, which, marker = fault.split(":")
            if which in ("any", str(seed)) and not (marker and Path(marker).exists()):
                if marker:
                    Path(marker).touch()
                if how == "raise":
                    raise ValueError("the environment broke")
                if how == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(600)
        return super().reset(seed=seed, options=options)


if "Fragile-v0" not in gym.registry:
    gym.register("Fragile-v0", FragileEnv, max_episode_steps=24)
