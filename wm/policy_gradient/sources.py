"""Where a policy gradient's steps come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from wm.artifacts.json_reader import Schema
from wm.policy_gradient.ppo import Passes, Rollout


@dataclass(frozen=True)
class Experience:
    """The steps of an iteration; where its episodes ended, (T, N) bool; the returns of those that did; and real
    environment steps."""

    rollout: Rollout
    ends: Tensor
    returns: list[float]
    env_steps: int


class Source(Protocol):
    """Plays with a policy: `place` is real or dream, `steps` the most that are played, in `unit`s, in at most so many
    `iterations`, and `passes` is how often they are learned from."""

    place: str
    steps: int
    iterations: int
    unit: str
    passes: Passes

    def play(self, parameters: NDArray[np.float32], iteration: int) -> Experience:
        """The steps of an iteration, which are a function of the policy, the iteration and the state."""

    def played(self, lines: Sequence[dict[str, Any]]) -> int:
        """The steps of iterations, from their lines in the log."""

    @property
    def state_schemas(self) -> dict[str, Schema]:
        """Of what `state` returns, by its keys."""

    def state(self) -> dict[str, Any]:
        """What it remembers between iterations, for a checkpoint."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
