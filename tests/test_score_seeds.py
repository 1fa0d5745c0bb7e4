import numpy as np
import pytest

from benchmarks.pages.score_seeds import interquartile_mean, interval, normalized, seeds_interval, worst


def mean(values: np.ndarray) -> np.ndarray:
    return values.mean(-1)


def test_the_interquartile_mean_leaves_out_the_outer_quarters() -> None:
    assert interquartile_mean(np.array([100.0, 1, 2, 3, 4, 5, 6, -100])) == 3.5
    assert interquartile_mean(np.array([1.0, 2, 6])) == 3


def test_an_interval_covers_the_seeds_means_and_needs_three() -> None:
    seeds = np.array([0.0, 1, 2])
    low, high = interval([seeds], mean) or (np.nan, np.nan)
    assert (low, high) == (0, 2)  # 1 of 27 samples has the same extreme seed three times: 3.7 %
    assert interval([seeds], mean) == interval([seeds], mean)
    assert interval([seeds, seeds[:2]], mean) is None
    assert interval([], mean) is None


def test_the_interval_of_three_seeds_covers_the_mean_of_all_seeds_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    bounds = [seeds_interval(random.normal(5, 2, 3)) or (np.nan, np.nan) for _ in range(4000)]
    assert np.mean([low <= 5 <= high for low, high in bounds]) == pytest.approx(0.95, abs=0.01)
    assert seeds_interval(np.array([1.0, 2.0])) is None


def test_the_bootstrap_is_stratified() -> None:
    """Seeds of one environment never stand for another's: these samples all have the same mean."""
    assert interval([np.zeros(3), np.full(3, 10.0)], mean) == (5, 5)


def test_an_interval_has_the_width_of_the_standard_error() -> None:
    seeds = np.random.default_rng(0).normal(0, 1, 400)
    low, high = interval([seeds], mean) or (np.nan, np.nan)
    assert high - low == pytest.approx(2 * 1.96 * seeds.std() / 20, rel=0.05)


def test_scores_are_scaled_from_the_random_policy_to_the_target_and_the_worst_seed_is_named() -> None:
    rows = [{"mean": value, "training_seeds": [seed]} for seed, value in ((4, -20.0), (5, 18.0), (6, -1.0))]
    (scaled,) = normalized({"Pong": rows}, {"Pong": (-20, 18)})
    assert scaled.tolist() == [0, 1, 0.5]
    assert worst(rows) == "-20.0 (seed 4)"
