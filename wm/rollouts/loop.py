"""Plays agents in environments, real or dreamed. It knows both only by the protocols below.

Lockstep: an agent acts in `num_envs` environments at a time, whose observations are one batch. An environment whose
episode ends takes the next job. The batch always has `num_envs` rows, zeros for idle environments: with a fixed shape
an episode's result does not depend on how many others are played.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EpisodeJob:
    """One episode to play: `key` names it in the results, `seed` seeds the environment and the agent's own randomness,
    `candidate` is the row of the parameters that act. With `one_life` a lost life ends it, as it ends a dream."""

    key: int
    seed: int
    candidate: int = 0
    one_life: bool = False


@dataclass(frozen=True)
class EpisodeResult:
    """The result of a job. `episode_return` is undiscounted, `length` the number of actions, `env_steps` that of the
    environment's steps."""

    key: int
    episode_return: float
    length: int
    env_steps: int
    terminated: bool
    truncated: bool


def lives_in(info: dict[str, Any]) -> float:
    """The lives that an environment reports. NaN, which is less than nothing, where it reports no number: what others
    call lives may be a table of players, or have a thousand digits."""
    lives = info.get("lives")
    try:
        return float(lives) if isinstance(lives, int | float | np.integer | np.floating) else math.nan
    except OverflowError:
        # An integer beyond all floats, which is no number of lives.
        return math.nan


class Agent(Protocol):
    """Acts in a fixed number of environments at a time."""

    num_envs: int

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        """A new episode begins in this environment."""

    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> Sequence[Any] | NDArray[Any]:
        """One action per environment for (num_envs, ...) observations."""


class Env(Protocol):
    """The part of gymnasium's interface that is used, and the environment's steps in the episode."""

    @property
    def steps(self) -> int:
        """More than the actions where each is repeated, and fewer than all repeats where the episode ends meanwhile."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One action."""


@dataclass
class _Episode:
    job: EpisodeJob
    episode_return: float = 0.0
    length: int = 0
    idle: int = 0  # steps since the last positive reward


def play(
    agent: Agent,
    envs: Sequence[Env],
    jobs: Sequence[EpisodeJob],
    max_steps: int = 0,
    max_idle: int = 0,
    heartbeat: Callable[[int], None] | None = None,
) -> Iterator[EpisodeResult]:
    """Play every job; yield results as episodes end. Episodes are truncated after `max_steps`, and after `max_idle`
    steps in a row without a positive reward (0: at the environment's own limit only). `heartbeat` is called at every
    step, with the length of an episode so far."""
    queue = list(reversed(jobs))
    episodes: list[_Episode | None] = [None] * agent.num_envs
    infos: list[dict[str, Any]] = [{} for _ in range(agent.num_envs)]
    frames: NDArray[Any] | None = None
    length = 0

    def begin(index: int) -> None:
        nonlocal frames
        job = queue.pop()
        episodes[index] = _Episode(job)
        agent.begin(index, job)
        observation, infos[index] = envs[index].reset(seed=job.seed)
        if frames is None:
            frames = np.zeros((agent.num_envs, *np.shape(observation)), np.asarray(observation).dtype)
        frames[index] = observation

    for index in range(min(agent.num_envs, len(envs), len(queue))):
        begin(index)
    while any(episode is not None for episode in episodes):
        assert frames is not None
        if heartbeat is not None:
            heartbeat(length)
        actions = agent.act(frames, infos)
        for index, episode in enumerate(episodes):
            if episode is None:
                continue
            lives = lives_in(infos[index])
            observation, reward, terminated, truncated, infos[index] = envs[index].step(actions[index])
            terminated = terminated or (episode.job.one_life and lives_in(infos[index]) < lives)
            frames[index] = observation
            episode.episode_return += float(reward)
            episode.length += 1
            length = episode.length
            # A reward of 0 is idle, too: what a game pays for nothing must not count as progress.
            episode.idle = 0 if reward > 0 else episode.idle + 1
            limit = 0 < max_steps <= episode.length or 0 < max_idle <= episode.idle
            truncated = bool(truncated) or (limit and not terminated)
            if terminated or truncated:
                yield EpisodeResult(
                    episode.job.key,
                    episode.episode_return,
                    episode.length,
                    envs[index].steps,
                    bool(terminated),
                    truncated,
                )
                episodes[index] = None
                if queue:
                    begin(index)


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode but for its frames, in the time alignment of wm/episodes/schema.py: T + 1 rows."""

    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    labels: NDArray[np.float32]
    env_steps: int
    terminated: bool
    truncated: bool


@dataclass(frozen=True)
class Trajectory(PlayedEpisode):
    """A recorded episode with its T + 1 frames."""

    frames: NDArray[np.uint8]


def play_one(
    agent: Agent,
    env: Env,
    job: EpisodeJob,
    action_column: Callable[[int], NDArray[Any]],
    keep_frame: Callable[[NDArray[np.uint8]], None],
    max_steps: int = 0,
    heartbeat: Callable[[int], None] | None = None,
) -> PlayedEpisode:
    """Play one job with an agent of one environment and keep every row. `keep_frame` is given the frames in order."""
    agent.begin(0, job)
    observation, info = env.reset(seed=job.seed)
    keep_frame(observation)
    actions: list[Any] = []
    rewards: list[float] = []
    labels: list[Any] = [info.get("labels", ())]
    terminated = truncated = False
    while not (terminated or truncated):
        if heartbeat is not None:
            heartbeat(len(actions))
        action, lives = agent.act(observation[None], [info])[0], lives_in(info)
        observation, reward, terminated, truncated, info = env.step(action)
        terminated = terminated or (job.one_life and lives_in(info) < lives)
        keep_frame(observation)
        actions.append(action)
        rewards.append(float(reward))
        labels.append(info.get("labels", ()))
        truncated = bool(truncated) or (0 < max_steps <= len(actions) and not terminated)
    rows = len(actions) + 1
    column = action_column(rows)
    column[:-1] = actions
    return PlayedEpisode(
        actions=column,
        rewards=np.array([*rewards, 0.0], np.float32),
        labels=np.array(labels, np.float32).reshape(rows, -1),
        env_steps=env.steps,
        terminated=bool(terminated),
        truncated=truncated,
    )


def record(
    agent: Agent,
    env: Env,
    job: EpisodeJob,
    action_column: Callable[[int], NDArray[Any]],
    max_steps: int = 0,
    heartbeat: Callable[[int], None] | None = None,
) -> Trajectory:
    """Play one job with an agent of one environment and keep every row and frame."""
    frames: list[NDArray[np.uint8]] = []
    played = play_one(agent, env, job, action_column, frames.append, max_steps, heartbeat)
    return Trajectory(**vars(played), frames=np.stack(frames))
