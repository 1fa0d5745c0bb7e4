import numpy as np
import pytest

from wm.stats import (
    RIDGE,
    Score,
    grouped_half_width,
    rank_correlation,
    rank_correlation_interval,
    ridge_regression,
    student_quantile,
    with_interval,
)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (19, 2.0930), (99, 1.9842)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert abs(student_quantile(0.975, freedom) - quantile) < 1e-3


def test_the_interval_covers_the_truth_95_times_of_100() -> None:
    random = np.random.default_rng(0)
    scores = [Score.of(random.normal(3.0, 2.0, 10)) for _ in range(4000)]
    covered = np.mean([abs(score.mean - 3.0) <= score.ci95 for score in scores])
    assert abs(covered - 0.95) < 0.015


def test_the_interval_of_values_that_come_in_groups_covers_the_truth_95_times_of_100() -> None:
    random, groups = np.random.default_rng(0), np.repeat(np.arange(8), [5, 40, 20, 30, 10, 25, 15, 35])
    covered = []
    for _ in range(2000):
        values = 3.0 + random.normal(size=8)[groups] + random.normal(size=len(groups))
        half = grouped_half_width(values, groups)
        assert half is not None
        covered.append(abs(values.mean() - 3.0) <= half)
    assert 0.90 < np.mean(covered) < 0.97  # taken for independent, the values would cover it half the time
    alone = random.normal(size=10)
    assert grouped_half_width(alone, np.arange(10)) == pytest.approx(Score.of(alone).ci95)
    assert grouped_half_width(np.arange(9.0), np.repeat([4, 7], [4, 5])) is None


def test_a_score_shows_its_interval() -> None:
    assert str(Score(1.25, 0.5, 10)) == "1.2 ± 0.5"
    assert str(Score(500.0, 0.0, 10)) == "500.0 ± 0.0"


def test_an_interval_that_is_narrow_is_not_shown_as_none() -> None:
    """Of a game with returns up to 1, 0.98 ± 0.03 were 1.0 ± 0.0."""
    assert str(Score(0.98, 0.03, 100)) == "0.98 ± 0.03"
    assert with_interval(0.0123, 0.004, "+") == "+0.012 ± 0.004"
    assert with_interval(-3.0, 0.1) == "-3.0 ± 0.1"
    assert with_interval(500.0, 1e-16) == "500.0000 ± 0.0000"


def test_a_tiny_score_is_not_shown_as_zeros() -> None:
    assert str(Score(2.64e-6, 1.2e-7, 100)) == "2.6e-06 ± 1e-07"
    assert with_interval(-3e-8, 2e-6, "+") == "-3e-08 ± 2e-06"
    assert with_interval(1e-16, 1e-16, "+") == "+0.0000 ± 0.0000"


def test_rank_correlation_shares_ranks_among_ties() -> None:
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 20, 900])) == pytest.approx(1)
    assert rank_correlation(np.array([1.0, 1, 2, 3]), np.array([4.0, 3, 2, 1])) == pytest.approx(-0.9487, abs=1e-4)
    assert rank_correlation(np.zeros(4), np.arange(4.0)) is None


def test_the_interval_of_a_rank_correlation_needs_ten_pairs_that_vary() -> None:
    random = np.random.default_rng(0)
    one = random.normal(size=60)
    interval = rank_correlation_interval(one, one + random.normal(size=60), np.random.default_rng(1))
    assert interval is not None
    assert 0.3 < interval[0] < 0.7 < interval[1] < 0.95
    assert rank_correlation_interval(one[:9], one[:9], random) is None
    assert rank_correlation_interval(one, np.zeros(60), random) is None


def test_ridge_regression_shrinks_by_its_penalty() -> None:
    random = np.random.default_rng(0)
    inputs, weights = random.normal(size=(500, 3)), np.array([[1.0, 0.0], [-2.0, 1.0], [0.5, 0.0]])
    found = ridge_regression(inputs, inputs @ weights)
    assert np.abs(found - weights).max() < 5 * RIDGE
    shrunk = ridge_regression(inputs, inputs @ weights, np.array([0.0, 1000.0, 0.0]))
    assert np.abs(shrunk[1]).max() < 1.1
    assert np.abs(shrunk[0] - weights[0]).max() < 0.1
