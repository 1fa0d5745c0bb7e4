import numpy as np
import pytest

from wm.evaluation import baselines as forecast
from wm.evaluation.baselines import Baselines


def test_each_guess_is_best_where_its_assumption_holds() -> None:
    random = np.random.default_rng(0)
    now, actions = random.standard_normal((2000, 3)), random.standard_normal((2000, 2))
    before = random.standard_normal((2000, 3))
    worlds = {
        "marginal": random.standard_normal((2000, 3)),
        "persistence": now + 0.1 * random.standard_normal((2000, 3)),
        "linear": 2 * now - before + 0.3 * actions[:, :1] + 0.1 * random.standard_normal((2000, 3)),
    }
    for best, after in worlds.items():
        found = Baselines.fit(before, now, actions, after).nll(before, now, actions, after)
        assert found[best] <= min(found.values()) + 0.02
    assert found["linear"] == pytest.approx(np.log(0.1) + 0.5 * np.log(2 * np.pi * np.e), abs=0.05)


def test_rank_correlation_shares_ranks_among_ties() -> None:
    assert forecast.rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 20, 900])) == pytest.approx(1)
    assert forecast.rank_correlation(np.array([1.0, 1, 2, 3]), np.array([4.0, 3, 2, 1])) == pytest.approx(
        -0.9487, abs=1e-4
    )
    assert forecast.rank_correlation(np.zeros(4), np.arange(4.0)) is None


def test_the_usual_reward_is_that_of_most_steps() -> None:
    assert forecast.usual(np.array([-0.1, -0.1, 3.0])) == pytest.approx(-0.1)
    assert forecast.usual(np.arange(10.0)) is None


def rewards() -> tuple[np.ndarray, np.ndarray]:
    real = np.zeros(200)
    real[5:200:10] = np.tile([1.0, -1.0], 10)
    return real, np.zeros(200, np.int64)


def test_rewards_foretold_a_step_off_are_found_and_their_sign_matters() -> None:
    real, episodes = rewards()
    assert forecast.recall(np.roll(real, 1), real, episodes, 0.0, 0.5) == 1
    assert forecast.recall(np.roll(real, 2), real, episodes, 0.0, 0.5) == 0
    assert forecast.recall(-real, real, episodes, 0.0, 0.5) == 0
    half = np.where(np.arange(200) < 100, real, 0)
    assert forecast.recall(half, real, episodes, 0.0, 0.5) == 0.5
    assert forecast.recall(real, real * 0, episodes, 0.0, 0.5) is None


def test_recall_is_taken_where_precision_is_asked_for() -> None:
    real, episodes = rewards()
    calls = real + 0.5 * (np.roll(real, 3) + np.roll(real, 5) + np.roll(real, 7))  # three false calls, but fainter
    assert forecast.recall(calls, real, episodes, 0.0, 0.5) == 1
    faint = 0.5 * real + np.roll(real, 3) + np.roll(real, 5) + np.roll(real, 7)
    assert forecast.recall(faint, real, episodes, 0.0, 0.5) == 0


def test_neighbours_in_other_episodes_do_not_count() -> None:
    real, _ = rewards()
    shifted = np.roll(real, 1)
    assert forecast.recall(shifted, real, np.arange(200), 0.0, 0.5) == 0
    around = 0.5 * real + np.roll(real, 1) + np.roll(real, -1)  # two loud calls next to every event, in other episodes
    assert forecast.recall(around, real, np.arange(200), 0.0, 0.5) == 0


def test_what_is_not_called_is_not_found_however_many_events_there_are() -> None:
    real = np.tile([1.0, 0.0], 100)
    said = (np.arange(200) < 150).astype(float)
    assert forecast.recall(said, real, np.zeros(200, np.int64), 0.0, 0.5) == pytest.approx(0.75, abs=0.011)


def test_brier_and_calibration() -> None:
    probability, happened = np.array([0.0, 0.8, 0.8, 0.8, 0.8]), np.array([0, 1, 1, 1, 0])
    assert forecast.brier(probability, happened) == pytest.approx((3 * 0.2**2 + 0.8**2) / 5)
    bins = forecast.calibration(probability, happened)
    assert [found["steps"] for found in bins] == [1, 4]
    assert bins[1] == {"steps": 4, "said": pytest.approx(0.8), "happened": 0.75}
