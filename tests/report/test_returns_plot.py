from typing import Any

from wm.report.plots import LONGEST_NAME, Curve
from wm.report.returns_plot import search_plots


def test_returns_of_different_episodes_are_on_different_axes() -> None:
    lines: list[dict[str, Any]] = [
        {"generation": 1, "in": "dream", "returns": [1.0, 3.0], "env_steps": 0},
        {"generation": 2, "in": "real", "returns": [-8.0, -6.0], "env_steps": 90, "validation": [-20.0, -21.0]},
    ]
    plots = search_plots(lines, ("random policy", -20.5))
    assert all(len(plot.series) == 1 for plot in plots)
    curves = [plot.series[0] for plot in plots]
    assert all(isinstance(curve, Curve) for curve in curves)
    assert [list(curve.y) for curve in curves] == [[-20.5], [-7.0], [2.0]]  # type: ignore[union-attr]
    assert [plot.level is not None for plot in plots] == [True, False, False]  # the random policy plays whole episodes
    assert [plot.title.partition(",")[0] for plot in plots] == [
        "validation in the real environment",
        "candidates in the real environment",
        "candidates in the dream",
    ]


def test_names_of_curves_fit_a_legend() -> None:
    candidates = {"generation": 1, "returns": [1.0, 3.0], "env_steps": 90, "validation": [2.0, 3.0]}
    for line in (candidates, candidates | {"policy": {}}):
        for plot in search_plots([line | {"in": "real"}, line | {"in": "dream"}]):
            assert all(len(curve.name) <= LONGEST_NAME for curve in plot.series if isinstance(curve, Curve))


def test_a_search_that_has_just_begun_has_no_plot() -> None:
    assert search_plots([]) == []


def test_validations_in_the_dream_are_told_by_the_log_alone() -> None:
    """An unfinished search has no metrics yet. A mixed one is validated in reality."""
    dreamt: dict[str, Any] = {"generation": 5, "in": "dream", "returns": [1.0, 3.0], "env_steps": 0}
    plot, _ = search_plots([dreamt | {"validation": [2.0, 2.5]}], ("random policy", -20.5))
    assert plot.title == "validation in the dream, whole episodes"
    assert plot.level is None  # the random policy has played in reality
    mixed, _ = search_plots([dreamt | {"validation": [2.0, 2.5], "env_steps": 70}], ("random policy", -20.5))
    assert mixed.title == "validation in the real environment, whole episodes"
    assert mixed.level is not None
