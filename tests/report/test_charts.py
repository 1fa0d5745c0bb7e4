import math
import re
from xml.etree import ElementTree

import pytest

from wm.report import charts
from wm.report.plots import Curve


def points(svg: str) -> list[list[tuple[float, float]]]:
    found = [line.attrib["points"] for line in ElementTree.fromstring(svg).iter("polyline")]
    return [[tuple(map(float, pair.split(","))) for pair in text.split()] for text in found]  # type: ignore[misc]


def test_a_curve_is_drawn_where_its_values_are() -> None:
    ((first, second, third),) = points(charts.lines([Curve("a", [0, 5, 10], [1, 3, 2])], "step", "loss"))
    assert first[0] < second[0] < third[0]
    assert second[0] == pytest.approx((first[0] + third[0]) / 2, abs=0.1)
    assert second[1] < third[1] < first[1]  # up is less


def test_everything_drawn_is_inside_the_picture() -> None:
    curve = Curve("a", [1, 5, 15, 50], [1e4, -2e6, 3.5, 0], low=[0, -3e6, 0, -1], high=[2e4, 0, 9, 1])
    svg = ElementTree.fromstring(charts.lines([curve], "x", "y", level=("zero", 0), ticks_at=True))
    for shape in svg.iter():
        numbers = [float(pair) for pair in re.findall(r"-?[\d.]+", shape.attrib.get("points", ""))]
        assert all(0 <= number <= charts.WIDE for number in numbers)
    assert [text.text for text in svg.iter("text")][-2:] == ["a", "zero"]


def test_a_chart_says_in_words_what_it_shows() -> None:
    svg = charts.lines([Curve("ours", [0, 1], [1, 2.5])], "generation", "<return>", level=("random", -20))
    told = ElementTree.fromstring(svg).attrib
    assert told["role"] == "img"
    assert told["aria-label"] == "<return> over generation: ours from 1 to 2.5; random -20"


def test_what_is_not_a_number_is_left_out_and_nothing_gives_no_chart() -> None:
    ((*kept,),) = points(charts.lines([Curve("a", [0, 1, 2], [1, math.nan, 2])], "x", "y"))
    assert len(kept) == 2
    assert charts.lines([Curve("a", [], [])], "x", "y") == ""
    assert charts.lines([Curve("a", [0], [math.inf])], "x", "y") == ""
    assert charts.scatter([], [], "x", "y", "") == ""


def test_a_long_curve_is_thinned() -> None:
    ((*kept,),) = points(charts.lines([Curve("a", range(100_000), [0.5] * 100_000)], "x", "y"))
    assert 200 <= len(kept) <= charts.POINTS


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (-21, -12, [-20, -18, -16, -14, -12]),
        (0.1, 0.35, [0.1, 0.15, 0.2, 0.25, 0.3, 0.35]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert charts.ticks(low, high, 6) == pytest.approx(expected)
