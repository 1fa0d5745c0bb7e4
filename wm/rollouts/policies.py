"""Observation-free policies, which collect random data. They import no torch, so workers start fast."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.errors import UsageProblem
from wm.rollouts.loop import Agent, EpisodeJob
from wm.seeding import generator

# In Acrobot 48 % of the episodes of actions held for four steps end, 5 % of uniformly random ones (2026-11-27).
HOLD = (1, 8)  # steps for which a random action is repeated, both ends included
DRAWN = 64  # actions drawn at once, which are those of as many draws, a tenth of the time for each
# No other value was compared. A random walk with it takes about (2 / 0.15) squared, 180 steps, to cross the box.
BROWNIAN_STEP = 0.15  # of half the box's width


def random_action(space: ActionSpace, random: np.random.Generator, among: Sequence[int] | None = None) -> Any:
    """Uniform over the action space, or over the discrete actions `among`: an int, or a float32 array."""
    if space.discrete:
        number = int(random.integers(space.count if among is None else len(among)))
        return number if among is None else among[number]
    return random.uniform(np.array(space.low, np.float32), np.array(space.high, np.float32)).astype(np.float32)


class _ObservationFree:
    """Base: one generator per environment, seeded by the job."""

    def __init__(self, space: ActionSpace, num_envs: int = 1) -> None:
        self.space, self.num_envs = space, num_envs
        self._random = [generator(0, "policy") for _ in range(num_envs)]
        self._low = np.array(space.low, np.float32)
        self._high = np.array(space.high, np.float32)

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        """A new episode: every action depends on the job's seed alone."""
        self._random[env_index] = generator(job.seed, "policy")

    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> list[Any]:
        """One action per environment."""
        return [self._sample(env_index) for env_index in range(self.num_envs)]

    def _sample(self, env_index: int) -> Any:
        return random_action(self.space, self._random[env_index])


class RandomPolicy(_ObservationFree):
    """Uniform over the action space, independently at every step."""

    def __init__(self, space: ActionSpace, num_envs: int = 1) -> None:
        super().__init__(space, num_envs)
        self._drawn: list[list[int]] = [[] for _ in range(num_envs)]

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        super().begin(env_index, job)
        self._drawn[env_index].clear()

    def _sample(self, env_index: int) -> Any:
        if not self.space.discrete:
            return super()._sample(env_index)
        drawn = self._drawn[env_index]
        if not drawn:
            drawn.extend(self._random[env_index].integers(self.space.count, size=DRAWN).tolist()[::-1])
        return drawn.pop()


class StickyPolicy(_ObservationFree):
    """A random action repeated for a random number of steps, so that paddles and cars get somewhere. Of discrete
    actions it plays those in `among`."""

    def __init__(self, space: ActionSpace, num_envs: int = 1, among: Sequence[int] | None = None) -> None:
        super().__init__(space, num_envs)
        self._among = among
        self._steps_left = [0] * num_envs
        self._action: list[Any] = [None] * num_envs

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        super().begin(env_index, job)
        self._steps_left[env_index] = 0

    def _sample(self, env_index: int) -> Any:
        if self._steps_left[env_index] == 0:
            self._steps_left[env_index] = int(self._random[env_index].integers(HOLD[0], HOLD[1] + 1))
            self._action[env_index] = random_action(self.space, self._random[env_index], self._among)
        self._steps_left[env_index] -= 1
        return self._action[env_index]


class BrownianPolicy(_ObservationFree):
    """A random walk within the box of a continuous action space.

    With `low`, the walk has these lower bounds and its actions are clipped to the box. So a pedal can stay released
    for a while.
    """

    def __init__(self, space: ActionSpace, num_envs: int = 1, low: Sequence[float] | None = None) -> None:
        if space.discrete:
            raise UsageProblem("--policy brownian needs continuous actions; use sticky or random here.")
        super().__init__(space, num_envs)
        self._edge = self._low
        if low is not None:
            self._low = np.array(low, np.float32)
        self._at = [(self._low + self._high) / 2] * num_envs

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        super().begin(env_index, job)
        self._at[env_index] = self._random[env_index].uniform(self._low, self._high).astype(np.float32)

    def _sample(self, env_index: int) -> Any:
        # Half the width: a step of one deviation is 7.5 % of the whole range.
        move = self._random[env_index].standard_normal(len(self._low)) * BROWNIAN_STEP * (self._high - self._low) / 2
        self._at[env_index] = np.clip(self._at[env_index] + move, self._low, self._high).astype(np.float32)
        return np.maximum(self._at[env_index], self._edge)


def observation_free_policy(
    name: str, space: ActionSpace, low: Sequence[float] | None = None, among: Sequence[int] | None = None
) -> Agent:
    """random, sticky among some actions, or brownian; raises UsageProblem where the action space is not for it."""
    if name == "brownian":
        return BrownianPolicy(space, low=low)
    return StickyPolicy(space, among=among) if name == "sticky" else RandomPolicy(space)


def pick_policy(name: str, space: ActionSpace) -> str:
    """Resolve `auto`: sticky for discrete actions, brownian for continuous ones."""
    if name != "auto":
        return name
    return "sticky" if space.discrete else "brownian"
