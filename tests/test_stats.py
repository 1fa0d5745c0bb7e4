import numpy as np
import pytest

from wm.stats import Score, student_quantile


@pytest.mark.parametrize(("freedom", "quantile"), [(9, 2.2622), (19, 2.0930), (99, 1.9842)])
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert abs(student_quantile(0.975, freedom) - quantile) < 1e-3


def test_the_interval_covers_the_truth_95_times_of_100() -> None:
    random = np.random.default_rng(0)
    scores = [Score.of(random.normal(3.0, 2.0, 10)) for _ in range(4000)]
    covered = np.mean([abs(score.mean - 3.0) <= score.ci95 for score in scores])
    assert abs(covered - 0.95) < 0.015


def test_a_score_shows_its_interval() -> None:
    assert str(Score(1.25, 0.5, 10)) == "1.2 ± 0.5"
