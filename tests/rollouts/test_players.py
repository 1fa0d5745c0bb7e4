from unittest.mock import Mock

import numpy as np
import pytest

from wm.envs.registry import EnvConfig
from wm.rollouts.loop import EpisodeJob
from wm.rollouts.players import RandomSpec, evaluation_jobs, play_jobs, play_tasks, split_jobs
from wm.rollouts.workers import Workers
from wm.seeding import episode_seed


def test_every_job_is_played_once_whatever_the_number_of_workers() -> None:
    jobs = [EpisodeJob(key, key) for key in range(11)]
    for workers in (1, 2, 5, 20):
        portions = split_jobs(jobs, workers)
        assert sorted(job.key for portion in portions for job in portion) == list(range(11))
        assert max(map(len, portions)) - min(map(len, portions)) <= 1


@pytest.mark.parametrize("episodes", [1, 3, 16])
def test_a_small_task_has_the_parameters_of_its_own_candidates_alone(episodes: int) -> None:
    candidates = np.arange(20, dtype=np.float32)[:, None]
    jobs = [EpisodeJob(key, key, key // episodes) for key in range(20 * episodes)]
    workers = Mock(spec=Workers, share=False, count=2)
    played = {}
    for _, own, portion in play_tasks(workers, RandomSpec(EnvConfig("CartPole")), candidates, jobs):
        assert len(own) == len({job.candidate for job in portion}) <= len(portion) <= 8
        played |= {job.key: own[job.candidate, 0] for job in portion}
    assert played == {job.key: candidates[job.candidate, 0] for job in jobs}


def test_test_seeds_are_disjoint_from_training_seeds() -> None:
    test = {job.seed for job in evaluation_jobs(1000)}
    train = {episode_seed("train", 0, "controller", g, e) for g in range(100) for e in range(4)}
    assert len(test) == 1000
    assert not test & train


def test_the_random_policy_plays_the_same_episodes_in_any_order() -> None:
    spec = RandomSpec(EnvConfig("CartPole"))
    jobs = evaluation_jobs(6)
    forwards = {result.key: result for result in play_jobs(spec, None, jobs)}
    backwards = {result.key: result for result in play_jobs(spec, None, jobs[::-1])}
    assert forwards == backwards
