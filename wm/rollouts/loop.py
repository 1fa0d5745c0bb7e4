"""Plays agents in environments, real or dreamed. It knows both only by the protocols below.

Lockstep: every slot has an environment; V, M and C see the frames of all slots as one batch. A slot whose episode is
over takes the next job. The batch always has all slots, the idle ones filled with zeros, so that what one slot
computes does not depend on how many others are busy.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EpisodeJob:
    """One episode to play: `key` names it in the results, `seed` decides the environment and the agent's own chance,
    `candidate` says whose parameters act."""

    key: int
    seed: int
    candidate: int = 0


@dataclass(frozen=True)
class EpisodeResult:
    """What came of a job. `total` is the undiscounted return, `length` the number of actions."""

    key: int
    total: float
    length: int
    terminated: bool
    truncated: bool


class Agent(Protocol):
    """Acts for a fixed number of slots at a time."""

    slots: int

    def begin(self, slot: int, job: EpisodeJob) -> None:
        """A new episode begins in this slot."""

    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> Sequence[Any] | NDArray[Any]:
        """One action per slot for (slots, ...) observations."""


class Env(Protocol):
    """The part of gymnasium's interface that is used."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One action."""


@dataclass
class _Slot:
    job: EpisodeJob
    total: float = 0.0
    length: int = 0
    idle: int = 0


def play(
    agent: Agent,
    envs: Sequence[Env],
    jobs: Sequence[EpisodeJob],
    max_steps: int = 0,
    max_idle: int = 0,
    heartbeat: Callable[[], None] | None = None,
) -> Iterator[EpisodeResult]:
    """Play every job; yield outcomes as episodes end. Episodes are truncated after `max_steps`, and after `max_idle`
    steps in a row without a positive reward (0: the environment's own limit alone); `beat` is called at every step."""
    queue = list(reversed(jobs))
    slots: list[_Slot | None] = [None] * agent.slots
    infos: list[dict[str, Any]] = [{} for _ in range(agent.slots)]
    frames: NDArray[Any] | None = None

    def begin(number: int) -> None:
        nonlocal frames
        job = queue.pop()
        slots[number] = _Slot(job)
        agent.begin(number, job)
        observation, infos[number] = envs[number].reset(seed=job.seed)
        if frames is None:
            frames = np.zeros((agent.slots, *np.shape(observation)), np.asarray(observation).dtype)
        frames[number] = observation

    for number in range(min(agent.slots, len(envs), len(queue))):
        begin(number)
    while any(slot is not None for slot in slots):
        assert frames is not None
        if heartbeat is not None:
            heartbeat()
        actions = agent.act(frames, infos)
        for number, slot in enumerate(slots):
            if slot is None:
                continue
            observation, reward, terminated, truncated, infos[number] = envs[number].step(actions[number])
            frames[number] = observation
            slot.total += float(reward)
            slot.length += 1
            slot.idle = 0 if reward > 0 else slot.idle + 1
            cut = 0 < max_steps <= slot.length or 0 < max_idle <= slot.idle
            truncated = bool(truncated) or (cut and not terminated)
            if terminated or truncated:
                yield EpisodeResult(slot.job.key, slot.total, slot.length, bool(terminated), truncated)
                slots[number] = None
                if queue:
                    begin(number)


@dataclass(frozen=True)
class Trajectory:
    """A recorded episode in the time alignment of wm/episodes/schema.py: T + 1 rows."""

    frames: NDArray[np.uint8]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    labels: NDArray[np.float32]
    terminated: bool
    truncated: bool


def record(
    agent: Agent,
    env: Env,
    job: EpisodeJob,
    action_column: Callable[[int], NDArray[Any]],
    max_steps: int = 0,
    heartbeat: Callable[[], None] | None = None,
) -> Trajectory:
    """Play one job with a one-slot agent and keep every row. Raises ValueError for a reward that is not finite."""
    agent.begin(0, job)
    observation, info = env.reset(seed=job.seed)
    frames: list[Any] = [observation]
    actions: list[Any] = []
    rewards: list[float] = []
    labels: list[Any] = [info.get("labels", ())]
    terminated = truncated = False
    while not (terminated or truncated):
        if heartbeat is not None:
            heartbeat()
        action = agent.act(observation[None], [info])[0]
        observation, reward, terminated, truncated, info = env.step(action)
        if not np.isfinite(reward):
            raise ValueError(f"the environment gave the reward {reward} at step {len(actions)} of seed {job.seed}")
        frames.append(observation)
        actions.append(action)
        rewards.append(float(reward))
        labels.append(info.get("labels", ()))
        truncated = bool(truncated) or (0 < max_steps <= len(actions) and not terminated)
    column = action_column(len(frames))
    column[:-1] = actions
    return Trajectory(
        frames=np.stack(frames),
        actions=column,
        rewards=np.array([*rewards, 0.0], np.float32),
        labels=np.array(labels, np.float32).reshape(len(frames), -1),
        terminated=bool(terminated),
        truncated=truncated,
    )
