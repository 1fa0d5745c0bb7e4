"""What the pages say of a result is what its interval and its baselines say."""

from typing import Any

import pytest

from benchmarks.pages import learning, scores
from wm.report import fidelity_plot
from wm.report.conclusions import (
    dream_conclusions,
    event_conclusion,
    event_rates,
    prediction_conclusion,
    prediction_ratio,
    prediction_summary,
    ranking_conclusion,
    score_conclusion,
)

PONG = {"15": {"M": 1.44, "linear": 1.31, "mean": 1.61, "persistence": 2.95}, "50": None}


def score(mean: float, half: float, random: float, random_half: float) -> dict[str, Any]:
    return {"mean": mean, "ci95": half, "random": {"mean": random, "ci95": random_half}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((-20.2, 0.7, -20.5, 0.5), "not better than random (+0.3 ± 0.9)"),
        ((-17.5, 0.8, -20.5, 0.5), "better than random (+3.0 ± 0.9)"),
        ((-25.0, 0.8, -20.5, 0.5), "worse than random (-4.5 ± 0.9)"),
        ((0.05, 0.01, 0.02, 0.01), "better than random (+0.03 ± 0.01)"),
    ],
)
def test_a_score_is_compared_with_random_by_the_interval_of_the_difference(values: Any, words: str) -> None:
    assert score_conclusion(score(*values)) == words
    assert score_conclusion(score(*values), -18.0).startswith(f"{words}; ")
    assert score_conclusion(score(-17.5, 0.4, -20.5, 0.5), -18.0).endswith("above the threshold -18")
    assert score_conclusion(score(-17.5, 0.8, -20.5, 0.5), -18.0).endswith("the threshold -18 is within its interval")
    assert score_conclusion(score(-18.9, 0.8, -20.5, 0.5), -18.0).endswith("below the threshold -18")


@pytest.mark.parametrize(
    ("own", "half", "words"),
    [
        (1.44, 0.05, "M is worse than a linear prediction 15 steps ahead here: 1.10 times its squared error"),
        (1.44, 0.20, "M is no better than a linear prediction 15 steps ahead here: 1.10 times its squared error"),
        (1.20, 0.20, "M is no better than a linear prediction 15 steps ahead here: 0.92 times its squared error"),
        (0.50, 0.20, "M is better than a linear prediction 15 steps ahead here: 0.38 times its squared error"),
    ],
)
def test_m_is_compared_with_its_best_baseline_by_the_interval_of_the_difference(
    own: float, half: float, words: str
) -> None:
    errors = PONG["15"] | {"M": own, "difference_ci95": {"linear": half, "persistence": 0.0, "mean": 0.0}}  # type: ignore[operator]
    assert (
        prediction_conclusion({"15": errors, "50": None}, "here")
        == f"{words} (difference {own - 1.31:+.2g} ± {half:.2g})."
    )
    summary = prediction_summary({"15": errors})
    assert summary == f"{own / 1.31:.2f}, {words.split()[2]}" + (" better" if " no " in words else "")
    assert learning._shares([{"mdnrnn": {"open_loop": {"15": errors}}}], "15").endswith(
        f"better in {int('is better' in words)} of 1"
    )


def test_without_an_interval_there_is_a_ratio_and_no_conclusion() -> None:
    said = "M has 1.10 times the squared error of a linear prediction 15 steps ahead here; without an interval."
    assert prediction_conclusion(PONG, "here") == said
    few = PONG["15"] | {"difference_ci95": dict.fromkeys(("linear", "persistence", "mean"))}  # type: ignore[operator]
    assert prediction_conclusion({"15": few}, "here") == said
    assert prediction_summary(PONG) == "1.10"
    assert learning._shares([{"mdnrnn": {"open_loop": PONG}}], "15") == "1.10 (1.10 to 1.10)"
    assert prediction_conclusion({"15": None}, "here") == ""
    assert prediction_summary({"15": None}) == "–"
    assert "5 steps ahead" in prediction_conclusion({"5": PONG["15"], "15": None}, "here")
    assert prediction_summary({"1": PONG["15"], "15": None}) == "1.10 (1 step)"
    assert prediction_ratio({"M": 0.0, "linear": 0.0, "mean": 0.0, "persistence": 0.0}) == 1.0  # a constant z


@pytest.mark.parametrize(("linear", "ratio"), [(0.0, "over 1,000"), (1e-9, "over 1,000"), (0.001, "85.00")])
def test_m_is_not_said_to_equal_a_baseline_without_an_error(linear: float, ratio: str) -> None:
    errors = {"M": 0.085, "linear": linear, "mean": 0.1, "persistence": 0.1, "difference_ci95": {"linear": 0.014}}
    said = prediction_conclusion({"1": errors}, "here")
    assert said.startswith(f"M is worse than a linear prediction 1 step ahead here: {ratio} times its squared error")
    assert prediction_summary({"1": errors}) == f"{ratio} (1 step), worse"


def test_the_page_of_scores_judges_m_by_its_best_baseline() -> None:
    metrics = {
        **dict.fromkeys(("rho", "rho_ci95", "rho_last_third", "rho_last_third_ci95")),
        **dict.fromkeys(("dream_return", "dream_return_ci95", "real_return", "real_return_ci95"), 1.0),
        **dict.fromkeys(("dream_length", "real_length"), 1.0),
        "z_variance_ratio": [1, 1, 1],
        "open_loop": PONG,
    }
    assert scores._dream({"env": "Pong", "agent": "cma", "training_seeds": [0], "dream": metrics})[-1] == "1.10"


def test_a_ranking_whose_interval_has_zero_is_not_shown() -> None:
    assert "not shown" in ranking_conclusion({"rho": 0.3, "rho_ci95": [-0.1, 0.6]})
    assert "not shown" not in ranking_conclusion({"rho": 0.5, "rho_ci95": [0.2, 0.7]})
    assert "opposite order" in ranking_conclusion({"rho": -0.7, "rho_ci95": [-0.9, -0.3]})
    assert "opposite" not in ranking_conclusion({"rho": -0.2, "rho_ci95": [-0.6, 0.3]})
    assert ranking_conclusion({"rho": None, "rho_ci95": None}) == ""


def test_a_rate_that_is_next_to_nothing_is_no_long_number() -> None:
    rates = {"positive": {"dream": 570.2, "real": 0.0123}, "end": {"dream": 4.52e-07, "real": 0.0}}
    told = "In 1,000 steps of dreams and of real episodes: rewards 570 against 0.0123, ends below 0.001 against 0."
    assert event_rates({"events": {"rates": rates}}) == told


def events(positive: float, negative: float, end: float) -> dict[str, Any]:
    counts = {"positive": positive, "negative": negative, "end": end}
    rates = {name: {"dream": 1.0, "real": 3.0, "events": count} for name, count in counts.items()}
    return {"events": {"rates": rates, "warning": ""}}


def test_events_are_said_to_agree_only_where_enough_happened_to_tell() -> None:
    agree = "are as frequent in dreams as in real episodes, within a factor of two"
    assert event_conclusion(events(500, 0, 10)) == f"Rewards and ends {agree}."
    assert event_conclusion(events(500, 40, 10)) == f"Rewards, penalties and ends {agree}."
    assert event_conclusion(events(500, 0, 9)) == f"Rewards {agree}; there are too few ends to tell."
    assert event_conclusion(events(9, 0.4, 12)) == f"Ends {agree}; there are too few rewards and penalties to tell."
    assert event_conclusion(events(9, 0, 9)).startswith("There are too few rewards and ends to compare")
    assert event_conclusion({"events": {"rates": {}, "warning": "Dreams have ..."}}) == "Dreams have ..."
    assert event_conclusion({}) == ""


def test_episodes_are_those_of_the_policy_that_played_them() -> None:
    own = dream_conclusions({"agent": "the controllers of its search", "open_loop": PONG})
    assert "15 steps ahead on the controller's episodes" in own
    without = dream_conclusions({"agent": "random linear policies", "open_loop": PONG})
    assert "15 steps ahead on a random linear policy's episodes" in without


def test_every_plot_and_page_of_open_loop_errors_has_the_linear_baseline() -> None:
    plot = fidelity_plot.open_loop(PONG)  # type: ignore[arg-type]
    assert [(series.name, list(series.y)) for series in plot.series] == [  # type: ignore[union-attr]
        ("M", [1.44]), ("linear", [1.31]), ("persistence", [2.95]), ("mean", [1.61]),
    ]  # fmt: skip
    assert plot.y_log  # the linear one may grow without bound
    assert learning._share({"mdnrnn": {"open_loop": PONG}}, "15") == pytest.approx(1.44 / 1.31)
