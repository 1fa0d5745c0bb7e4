import numpy as np
import pytest

from wm.evaluation.baselines import Baselines, brier_score, calibration, common_reward, reward_recall


def test_each_baseline_is_best_where_its_assumption_holds() -> None:
    random = np.random.default_rng(0)
    current, actions = random.standard_normal((2000, 3)), random.standard_normal((2000, 2))
    previous = random.standard_normal((2000, 3))
    worlds = {
        "mean": random.standard_normal((2000, 3)),
        "persistence": current + 0.1 * random.standard_normal((2000, 3)),
        "linear": 2 * current - previous + 0.3 * actions[:, :1] + 0.1 * random.standard_normal((2000, 3)),
    }
    for best, following in worlds.items():
        nll = Baselines.fit(previous, current, actions, following).nll(previous, current, actions, following)
        assert nll[best] <= min(nll.values()) + 0.02
    assert nll["linear"] == pytest.approx(np.log(0.1) + 0.5 * np.log(2 * np.pi * np.e), abs=0.05)


def test_the_common_reward_is_that_of_most_steps() -> None:
    assert common_reward(np.array([-0.1, -0.1, 3.0])) == pytest.approx(-0.1)
    assert common_reward(np.arange(10.0)) is None


def rewards() -> tuple[np.ndarray, np.ndarray]:
    real = np.zeros(200)
    real[5:200:10] = np.tile([1.0, -1.0], 10)
    return real, np.zeros(200, np.int64)


def test_rewards_predicted_a_step_off_are_recalled_and_their_sign_matters() -> None:
    real, episodes = rewards()
    assert reward_recall(np.roll(real, 1), real, episodes, 0.0, 0.5) == 1
    assert reward_recall(np.roll(real, 2), real, episodes, 0.0, 0.5) == 0
    assert reward_recall(-real, real, episodes, 0.0, 0.5) == 0
    half = np.where(np.arange(200) < 100, real, 0)
    assert reward_recall(half, real, episodes, 0.0, 0.5) == 0.5
    assert reward_recall(real, real * 0, episodes, 0.0, 0.5) is None


def test_recall_is_measured_at_the_given_precision() -> None:
    real, episodes = rewards()
    calls = real + 0.5 * (np.roll(real, 3) + np.roll(real, 5) + np.roll(real, 7))  # three false calls, but fainter
    assert reward_recall(calls, real, episodes, 0.0, 0.5) == 1
    faint = 0.5 * real + np.roll(real, 3) + np.roll(real, 5) + np.roll(real, 7)
    assert reward_recall(faint, real, episodes, 0.0, 0.5) == 0


def test_neighbours_in_other_episodes_do_not_count() -> None:
    real, _ = rewards()
    shifted = np.roll(real, 1)
    assert reward_recall(shifted, real, np.arange(200), 0.0, 0.5) == 0
    around = 0.5 * real + np.roll(real, 1) + np.roll(real, -1)  # two loud calls next to every event, in other episodes
    assert reward_recall(around, real, np.arange(200), 0.0, 0.5) == 0


def test_events_below_the_threshold_are_not_recalled_however_many_there_are() -> None:
    real = np.tile([1.0, 0.0], 100)
    predicted = (np.arange(200) < 150).astype(float)
    assert reward_recall(predicted, real, np.zeros(200, np.int64), 0.0, 0.5) == pytest.approx(0.75, abs=0.011)


def test_brier_and_calibration() -> None:
    probability, outcome = np.array([0.0, 0.8, 0.8, 0.8, 0.8]), np.array([0, 1, 1, 1, 0])
    assert brier_score(probability, outcome) == pytest.approx((3 * 0.2**2 + 0.8**2) / 5)
    bins = calibration(probability, outcome)
    assert [row["steps"] for row in bins] == [1, 4]
    assert bins[1] == {"steps": 4, "predicted": pytest.approx(0.8), "observed": 0.75}
