import numpy as np
import pytest

from wm.actions import ActionSpace
from wm.errors import UsageProblem
from wm.rollouts.loop import EpisodeJob
from wm.rollouts.policies import BrownianPolicy, StickyPolicy, observation_free_policy, pick_policy
from wm.seeding import generator

DISCRETE = ActionSpace(count=4)
BOX = ActionSpace(low=(-1.0, 0.0), high=(1.0, 1.0))


@pytest.mark.parametrize("name", ["brownian", "random", "sticky"])
def test_a_policy_repeats_itself_for_a_seed(name: str) -> None:
    space = BOX if name == "brownian" else DISCRETE
    runs = []
    for seed in (5, 5, 6):
        policy = observation_free_policy(name, space)
        policy.begin(0, EpisodeJob(0, seed))
        runs.append(np.array([policy.act(np.zeros(1), [{}])[0] for _ in range(50)]))
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_random_actions_are_those_of_one_draw_after_the_other() -> None:
    policy, random = observation_free_policy("random", DISCRETE), generator(5, "policy")
    for _ in range(2):  # what an episode leaves over is not for the next
        policy.begin(0, EpisodeJob(0, 5))
        first = [policy.act(np.zeros(1), [{}])[0] for _ in range(100)]
    assert first == [int(random.integers(4)) for _ in range(100)]


def test_sticky_holds_its_actions() -> None:
    policy = StickyPolicy(DISCRETE)
    policy.begin(0, EpisodeJob(0, 1))
    actions = np.array([policy.act(np.zeros(1), [{}])[0] for _ in range(1000)])
    assert 0.1 < np.mean(actions[1:] != actions[:-1]) < 0.35


def test_brownian_stays_in_its_box_and_moves_little() -> None:
    policy = BrownianPolicy(BOX)
    policy.begin(0, EpisodeJob(0, 1))
    actions = np.array([policy.act(np.zeros(1), [{}])[0] for _ in range(500)])
    assert (actions >= [-1, 0]).all()
    assert (actions <= [1, 1]).all()
    assert np.abs(np.diff(actions, axis=0)).mean() < 0.2


def test_a_walk_from_below_the_box_rests_at_its_edge() -> None:
    policy = BrownianPolicy(BOX, low=(-1.0, -2.0))
    policy.begin(0, EpisodeJob(0, 1))
    actions = np.array([policy.act(np.zeros(1), [{}])[0] for _ in range(3000)])
    assert (actions >= [-1, 0]).all()
    assert 0.4 < np.mean(actions[:, 1] == 0) < 0.95


def test_brownian_refuses_discrete_actions() -> None:
    with pytest.raises(UsageProblem, match="needs continuous actions"):
        BrownianPolicy(DISCRETE)
    assert pick_policy("auto", DISCRETE) == "sticky"
    assert pick_policy("auto", BOX) == "brownian"
