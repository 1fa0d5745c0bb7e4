from typing import Any

import numpy as np

from wm.rollouts.loop import EpisodeJob, Trajectory, play, record


class CountingEnv:
    """Observations are (seed, step); an episode ends after `seed % 5 + 2` steps; the reward is the action."""

    steps = 0

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        assert seed is not None
        self.seed, self.t, self.steps = seed, 0, 0
        return np.array([seed, 0.0]), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.t += 1
        self.steps += 3 if self.t < 4 else 1  # as if an action was repeated, and the episode ended meanwhile
        return np.array([self.seed, float(self.t)]), float(action), self.t == self.seed % 5 + 2, False, {}


class TapeAgent:
    """Acts with the step it observes, and records which job began in which environment."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.began = num_envs, []  # type: ignore[var-annotated]

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        self.began.append((env_index, job.key))

    def act(self, frames: Any, infos: Any) -> Any:
        assert len(frames) == len(infos) == self.num_envs
        return frames[:, 1]


def results(num_envs: int) -> Any:
    jobs = [EpisodeJob(key, seed=10 + key) for key in range(7)]
    return sorted(
        play(TapeAgent(num_envs), [CountingEnv() for _ in range(num_envs)], jobs), key=lambda result: result.key
    )


def test_results_do_not_depend_on_the_number_of_environments() -> None:
    assert results(1) == results(3) == results(16)
    assert [result.length for result in results(2)] == [(10 + k) % 5 + 2 for k in range(7)]


def test_an_idle_environment_takes_the_next_job() -> None:
    agent = TapeAgent(2)
    list(play(agent, [CountingEnv(), CountingEnv()], [EpisodeJob(k, seed=k) for k in range(4)]))
    assert sorted(key for _, key in agent.began) == [0, 1, 2, 3]
    assert {env_index for env_index, _ in agent.began} == {0, 1}


def test_max_steps_truncates_and_says_so() -> None:
    (result,) = play(TapeAgent(1), [CountingEnv()], [EpisodeJob(0, seed=14)], max_steps=3)
    assert (result.length, result.terminated, result.truncated) == (3, False, True)


class StingyEnv(CountingEnv):
    """Its only reward comes at the third step; episodes do not end."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, _, _, _, info = super().step(action)
        return observation, 1.0 if self.t == 3 else -0.1, False, False, info


def test_an_episode_without_a_positive_reward_for_long_is_truncated() -> None:
    (result,) = play(TapeAgent(1), [StingyEnv()], [EpisodeJob(0, seed=14)], max_steps=50, max_idle=4)
    assert (result.length, result.truncated) == (3 + 4, True)


def test_a_recorded_episode_has_a_row_more_than_actions() -> None:
    played: Trajectory = record(TapeAgent(1), CountingEnv(), EpisodeJob(0, seed=12), lambda rows: np.zeros(rows))
    assert played.frames[:, 1].tolist() == [0, 1, 2, 3, 4]
    assert played.actions.tolist() == [0, 1, 2, 3, 0]  # action t is taken after seeing frame t
    assert played.rewards.tolist() == [0, 1, 2, 3, 0]
    assert played.terminated
    assert not played.truncated


class LivingEnv(CountingEnv):
    """A life is lost in every second step."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *result, _ = super().step(action)
        return (*result, {"lives": 9 - self.t // 2})  # type: ignore[return-value]

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed)[0], {"lives": 9}


def test_a_lost_life_ends_an_episode_that_has_one_life() -> None:
    jobs = [EpisodeJob(0, 4), EpisodeJob(1, 4, one_life=True), EpisodeJob(2, 4, one_life=True)]
    played = {result.key: result for result in play(TapeAgent(2), [LivingEnv(), LivingEnv()], jobs)}
    assert [(played[key].length, played[key].terminated) for key in range(3)] == [(6, True), (2, True), (2, True)]
    kept = record(TapeAgent(1), LivingEnv(), jobs[1], lambda rows: np.zeros(rows))
    assert (len(kept.frames), kept.terminated) == (3, True)
