"""Policies that look at nothing: what random data is collected with. They import no torch, so workers start fast."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.errors import UsageProblem
from wm.rollouts.loop import Agent, EpisodeJob
from wm.seeding import generator

HOLD = (1, 8)  # steps an action is held by `sticky`, both ends included
BROWNIAN_STEP = 0.15  # of half the box's width


class _ObservationFree:
    """Base: one generator per slot, seeded by the job."""

    def __init__(self, space: ActionSpace, slots: int = 1) -> None:
        self.space, self.slots = space, slots
        self._random = [generator(0, "policy") for _ in range(slots)]
        self._low = np.array(space.low, np.float32)
        self._high = np.array(space.high, np.float32)

    def begin(self, slot: int, job: EpisodeJob) -> None:
        """A new episode: everything this policy draws depends on the job's seed."""
        self._random[slot] = generator(job.seed, "policy")

    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> list[Any]:
        """One action per slot."""
        return [self._draw(slot) for slot in range(self.slots)]

    def _draw(self, slot: int) -> Any:
        if self.space.discrete:
            return int(self._random[slot].integers(self.space.count))
        return self._random[slot].uniform(self._low, self._high).astype(np.float32)


class RandomPolicy(_ObservationFree):
    """Uniform over the action space, anew every step."""


class StickyPolicy(_ObservationFree):
    """A random action held for a random while, so that paddles and cars get somewhere."""

    def __init__(self, space: ActionSpace, slots: int = 1) -> None:
        super().__init__(space, slots)
        self._left = [0] * slots
        self._held: list[Any] = [None] * slots

    def begin(self, slot: int, job: EpisodeJob) -> None:
        super().begin(slot, job)
        self._left[slot] = 0

    def _draw(self, slot: int) -> Any:
        if self._left[slot] == 0:
            self._left[slot] = int(self._random[slot].integers(HOLD[0], HOLD[1] + 1))
            self._held[slot] = super()._draw(slot)
        self._left[slot] -= 1
        return self._held[slot]


class BrownianPolicy(_ObservationFree):
    """A random walk (continuous actions only) within the box, or from `walk_low` up: what is below the box is played
    as the box's edge, so that a pedal can be left alone for a while."""

    def __init__(self, space: ActionSpace, slots: int = 1, walk_low: Sequence[float] | None = None) -> None:
        if space.discrete:
            raise UsageProblem("--policy brownian needs continuous actions; use sticky or random here.")
        super().__init__(space, slots)
        self._edge = self._low
        if walk_low is not None:
            self._low = np.array(walk_low, np.float32)
        self._at = [(self._low + self._high) / 2] * slots

    def begin(self, slot: int, job: EpisodeJob) -> None:
        super().begin(slot, job)
        self._at[slot] = self._random[slot].uniform(self._low, self._high).astype(np.float32)

    def _draw(self, slot: int) -> Any:
        move = self._random[slot].standard_normal(len(self._low)) * BROWNIAN_STEP * (self._high - self._low) / 2
        self._at[slot] = np.clip(self._at[slot] + move, self._low, self._high).astype(np.float32)
        return np.maximum(self._at[slot], self._edge)


def observation_free_policy(name: str, space: ActionSpace, walk_low: Sequence[float] | None = None) -> Agent:
    """random, sticky or brownian; raises UsageProblem where the action space is not for it."""
    if name == "brownian":
        return BrownianPolicy(space, walk_low=walk_low)
    return {"random": RandomPolicy, "sticky": StickyPolicy}[name](space)


def pick_policy(asked: str, space: ActionSpace) -> str:
    """Resolve `auto`: sticky for discrete actions, brownian for continuous ones."""
    if asked != "auto":
        return asked
    return "sticky" if space.discrete else "brownian"
