"""Atari's older protocol: no sticky actions, but 1 to 30 no-ops before an agent acts (Mnih et al., 2015).

Without either, every episode of one policy that acts likeliest would be the same.
"""

from typing import Any

import gymnasium as gym

# As in Mnih et al. (2015) and in Machado et al. (2018), who compare it with sticky actions.
MOST_NOOPS = 30
# Action 0 does nothing in every game of Atari.
NOOP = 0


class NoopStart(gym.Wrapper[Any, Any, Any, Any]):
    """An Atari environment whose episodes begin with 1 to 30 no-ops; how many the episode's seed decides."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The observation after the last no-op, with its info."""
        observation, info = self.env.reset(seed=seed, options=options)
        # From the environment's own generator, which the reset has seeded: the episode stays a function of its seed.
        for _ in range(int(self.unwrapped.np_random.integers(1, MOST_NOOPS + 1))):
            observation, _, terminated, truncated, info = self.env.step(NOOP)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        return observation, info
