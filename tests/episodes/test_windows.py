from dataclasses import replace

import numpy as np
import pytest

from wm.actions import ActionSpace
from wm.episodes.latents import Latents
from wm.episodes.windows import Windows


def make(lengths: tuple[int, ...] = (12, 5, 30)) -> Latents:
    rows = sum(lengths)
    means = np.arange(rows, dtype=np.float32)[:, None].repeat(2, 1)
    return Latents(
        means=means,
        logvars=np.zeros_like(means),
        actions=np.arange(rows, dtype=np.int32) % 3,
        rewards=np.arange(rows, dtype=np.float32),
        ends=np.cumsum(lengths),
        terminated=np.array([True, True, False]),
        seeds=np.arange(len(lengths)),
        space=ActionSpace(count=3),
    )


def test_windows_stay_within_an_episode_and_mask_what_is_beyond_it() -> None:
    windows = Windows(make(), np.ones(3, bool), length=8, batch=64, seed=0)
    for step in range(20):
        batch = windows.at(step)
        rows = batch.means[:, :, 0]
        inside = batch.mask > 0
        assert (rows[:, 1:] - rows[:, :-1])[inside].min() == 1
        starts = np.array([0, 12, 17])
        episode = np.searchsorted(starts, rows[:, :1], side="right")
        assert np.array_equal(np.searchsorted(starts, rows, side="right"), np.broadcast_to(episode, rows.shape))
        assert np.array_equal(batch.rewards, rows[:, :-1] * batch.mask)
        left = np.array([12, 17, 47])[episode[:, 0] - 1] - rows[:, 0] - 1
        assert np.array_equal(batch.mask.sum(axis=1), np.minimum(left, 8))


def test_the_steps_since_a_window_began_do_not_tell_when_the_episode_ends() -> None:
    windows = Windows(make((60,)), np.ones(1, bool), length=8, batch=64, seed=0)
    ends = np.concatenate([windows.at(step).ends for step in range(100)])
    share = ends.sum(axis=0) / ends.sum()
    assert share.min() > 0.5 / 8
    assert share.max() < 2 / 8


def test_every_step_of_an_episode_comes_up() -> None:
    windows = Windows(make((60,)), np.ones(1, bool), length=8, batch=64, seed=0)
    batches = [windows.at(step) for step in range(100)]
    rewards = np.concatenate([batch.rewards[batch.mask > 0] for batch in batches]).astype(int)
    counts = np.bincount(rewards, minlength=59)
    assert counts.min() > 0.5 * counts.mean()


def test_the_end_of_a_terminated_episode_is_marked_and_that_of_a_truncated_one_is_not() -> None:
    windows = Windows(make(), np.ones(3, bool), length=8, batch=1, seed=0)
    batch = windows.cut(np.array([[0, 3], [1, 0], [2, 21]]))
    assert batch.ends.tolist()[0] == [0] * 7 + [1]
    assert batch.ends.tolist()[1] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert sum(batch.ends.tolist()[2]) == 0


def test_a_window_batch_depends_on_seed_and_step_alone() -> None:
    one, two = (Windows(make(), np.ones(3, bool), 8, 16, 5) for _ in range(2))
    one.at(0)
    assert np.array_equal(one.at(7).means, two.at(7).means)
    assert not np.array_equal(one.at(7).means, one.at(8).means)


def test_an_event_is_seen_more_often_than_it_happens_but_not_by_heart() -> None:
    latents = make((1000, 1000))
    rewards = np.zeros(2000, np.float32)
    rewards[1200], rewards[300:2000:40] = -1, 0.5
    latents = replace(latents, rewards=rewards, terminated=np.array([False, True]))
    usual, around = (Windows(latents, np.ones(2, bool), 8, 1000, 0, 3, share) for share in (0.0, 0.05))
    counts = []
    for windows in (usual, around):
        batch = windows.at(0)
        behind = batch.rewards[:, 3:] > 0, batch.rewards[:, 3:] < 0, batch.ends[:, 3:] > 0
        counts.append([int(kind.any(1).sum()) for kind in behind])
    assert counts[1][0] == pytest.approx(counts[0][0], abs=5)  # in a tenth of the windows as it is
    assert all(before < 8 for before in counts[0][1:])  # one each in 2,000 steps
    assert all(10 <= seen < 20 for seen in counts[1][1:])  # four times as often, and as it happens
    assert np.array_equal(around.at(0).means[20:], usual.at(0).means[20:])


def test_a_window_around_an_early_event_begins_with_the_episodes_first_steps() -> None:
    """With the usual context before the episode, of steps that do not exist: a rollout begins where one does."""
    latents = replace(make((1000, 1000)), rewards=np.zeros(2000, np.float32), terminated=np.zeros(2, bool))
    latents.rewards[3] = 1
    windows = Windows(latents, np.ones(2, bool), 30, 1000, 0, 8, 0.05)
    around = [batch for step in range(20) if len(batch := windows.at(step).mask[windows.at(step).rewards.any(1)])]
    assert len(around) > 10
    assert np.concatenate(around)[:, 8].all()
