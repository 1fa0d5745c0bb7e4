"""What the pages say of a result is what its interval and its baselines say."""

from typing import Any

import pytest

from benchmarks.pages import learning
from wm.report import fidelity_plot
from wm.report.verdicts import prediction_ratio, prediction_verdict, ranking_verdict, score_verdict

PONG = {"15": {"M": 1.44, "linear": 1.31, "mean": 1.61, "persistence": 2.95}, "50": None}


def score(mean: float, half: float, random: float, random_half: float) -> dict[str, Any]:
    return {"mean": mean, "ci95": half, "random": {"mean": random, "ci95": random_half}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((-20.2, 0.7, -20.5, 0.5), "not better than random (+0.3 ± 0.9)"),
        ((-17.5, 0.8, -20.5, 0.5), "better than random (+3.0 ± 0.9)"),
        ((-25.0, 0.8, -20.5, 0.5), "worse than random (-4.5 ± 0.9)"),
    ],
)
def test_a_score_is_compared_with_random_by_the_interval_of_the_difference(values: Any, words: str) -> None:
    assert score_verdict(score(*values)) == words
    assert score_verdict(score(*values), -18.0).startswith(f"{words}; ")
    assert score_verdict(score(-17.5, 0.4, -20.5, 0.5), -18.0).endswith("above the threshold -18")
    assert score_verdict(score(-17.5, 0.8, -20.5, 0.5), -18.0).endswith("the threshold -18 is within its interval")
    assert score_verdict(score(-18.9, 0.8, -20.5, 0.5), -18.0).endswith("below the threshold -18")


def test_m_is_compared_with_its_strongest_baseline() -> None:
    assert prediction_verdict(PONG, "here").startswith(
        "M is no better than a linear prediction 15 steps ahead here: 1.10"
    )
    better = {"15": {"M": 0.5, "linear": 2.0, "mean": 1.0, "persistence": 3.0}}
    assert prediction_verdict(better, "here").startswith("M is better than the mean z 15 steps ahead here: 0.50 times")
    assert prediction_verdict({"15": None}, "here") == ""
    assert "5 steps ahead" in prediction_verdict({"5": PONG["15"], "15": None}, "here")
    assert prediction_ratio({"M": 0.0, "linear": 0.0, "mean": 0.0, "persistence": 0.0}) == 1.0  # a constant z


def test_a_ranking_whose_interval_has_zero_is_not_shown() -> None:
    assert "not shown" in ranking_verdict({"rho": 0.3, "rho_ci95": [-0.1, 0.6]})
    assert "not shown" not in ranking_verdict({"rho": 0.5, "rho_ci95": [0.2, 0.7]})
    assert ranking_verdict({"rho": None, "rho_ci95": None}) == ""


def test_every_plot_and_page_of_open_loop_errors_has_the_linear_baseline() -> None:
    plot = fidelity_plot.open_loop(PONG)  # type: ignore[arg-type]
    assert [(series.name, list(series.y)) for series in plot.series] == [  # type: ignore[union-attr]
        ("M", [1.44]), ("linear", [1.31]), ("persistence", [2.95]), ("mean", [1.61]),
    ]  # fmt: skip
    assert plot.y_log  # the linear one may grow without bound
    assert learning._share({"mdnrnn": {"open_loop": PONG}}, "15") == pytest.approx(1.44 / 1.31)
