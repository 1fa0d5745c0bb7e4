"""Catch: a ball falls, a paddle moves left, stays or moves right. The smallest game that needs vision.

Eight by eight cells of eight pixels. The ball starts in a random column, the paddle in the middle of the lowest row;
after seven steps the episode ends with 1 if the ball was caught, else with -1. After Osband et al., "ActorCritic suite
for reinforcement learning" (2020).
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

# 64 pixels a side, the usual size of a frame, so that nothing is resized.
CELLS, PIXELS = 8, 8


class Catch(gym.Env[NDArray[np.uint8], Any]):
    """Observations are (64, 64, 3) uint8 frames; actions are left, stay, right."""

    observation_space = gym.spaces.Box(0, 255, (CELLS * PIXELS, CELLS * PIXELS, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self.ball, self.row, self.paddle = int(self.np_random.integers(CELLS)), 0, CELLS // 2
        return self._frame(), {}

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        self.row += 1
        self.paddle = min(max(self.paddle + int(action) - 1, 0), CELLS - 1)
        over = self.row == CELLS - 1
        reward = (1.0 if self.ball == self.paddle else -1.0) if over else 0.0
        return self._frame(), reward, over, False, {}

    def _frame(self) -> NDArray[np.uint8]:
        # A dark ground that is not black, and two colours that differ in gray, too, for --gray.
        cells = np.full((CELLS, CELLS, 3), 20, np.uint8)
        cells[CELLS - 1, self.paddle] = (90, 160, 250)
        cells[self.row, self.ball] = (250, 220, 90)
        return cells.repeat(PIXELS, 0).repeat(PIXELS, 1)


ID = "Catch-v0"
if ID not in gym.registry:
    gym.register(ID, "wm.envs.catch:Catch")
