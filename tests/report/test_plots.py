import io
import math
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from matplotlib import rcParams, style
from PIL import Image

from tests.conftest import environment
from wm.report import plots
from wm.report.plots import Curve, Histogram, Plot, Scatter, describe, draw, short, to_png, to_svg

EVERY_KIND = [
    Plot("x", "y", [Curve("a", [1, 2, 3], [3, 4, 9], [2, 3, 8], [4, 5, 10])], level=("level", 5)),
    Plot("x", "y", [Curve("a", range(100), [0.5] * 100)]),
    Plot("x", "y", [Curve("a", [1, 5, 15], [3, 4, 9])], x_ticks=[1, 5, 15]),
    Plot("x", "y", [Scatter([1, 2, 3], [3, 4, 9], ordered=True)]),
    Plot("x", "y", [Scatter([1, 2, 3], [3, 4, 9])], diagonal=True),
    Plot("x", "y", [Histogram("a", [1, 2, 2, 3]), Histogram("b", [2, 5, 5, 7])]),
]


def lines(svg: str) -> list[list[tuple[float, float]]]:
    """The points of the drawn curves."""
    paths = [path.attrib for path in ElementTree.fromstring(svg).iter("path")]
    curves = [path["d"] for path in paths if re.search(r"fill: none; stroke: var\(--k\d\)", path.get("style", ""))]
    found = [[tuple(map(float, pair)) for pair in re.findall(r"(-?[\d.]+) (-?[\d.]+)", curve)] for curve in curves]
    return [points for points in found if points[0][1] > 28]  # type: ignore[misc]  # above are the legend's


def texts(svg: str) -> list[str]:
    return [str(text.text) for text in ElementTree.fromstring(svg).iter("text")]


def test_curves_become_a_picture() -> None:
    data = draw([Curve("a", [1, 2], [3, 4], [2, 3], [4, 5]), Curve("b", [1, 2], [1, 1])], "title", "x", "y")
    assert Image.open(io.BytesIO(data)).size[0] > 500


def test_what_an_environment_has_made_of_matplotlib_changes_no_plot() -> None:
    plot = EVERY_KIND[0]
    before = to_png([plot], "$1$"), to_svg(plot)
    with style.context(["dark_background", {"text.usetex": True, "font.size": 30}]):
        assert (to_png([plot], "$1$"), to_svg(plot)) == before
        assert rcParams["text.usetex"]


@pytest.mark.parametrize("drawn", ["to_png([plot])", "to_svg(plot)"])
def test_a_notebook_s_backend_that_is_not_installed_here_keeps_no_plot_from_being_drawn(drawn: str) -> None:
    code = "from wm.report.plots import *; plot = Plot('x', 'y', [Curve('a', [1, 2], [3, 4])]); "
    backend = "module://not_installed.backend_inline"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print(len({drawn}), os.environ['MPLBACKEND'])"],
        env=environment(MPLBACKEND=backend), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()[1:]) == (0, [backend]), done.stderr


def test_a_name_may_be_as_long_as_a_folder_s() -> None:
    """Warnings, here of a plot without room, are errors in this suite."""
    names = ["a" * 255, "a" * 127 + "b" * 128]
    plot = Plot("step", "loss", [Curve(name, [1, 2, 3], [3, 4, 9]) for name in names])
    assert to_png([plot])
    assert {f"{name[:20]}…{name[-19:]}" for name in names} <= set(texts(to_svg(plot)))


def test_every_kind_of_plot_becomes_a_panel_and_a_chart() -> None:
    single, all_of_them = (Image.open(io.BytesIO(to_png(some))).size for some in (EVERY_KIND[:2], EVERY_KIND))
    assert all_of_them[1] > 2 * single[1]
    for plot in EVERY_KIND:
        ElementTree.fromstring(to_svg(plot))


def test_a_curve_is_drawn_where_its_values_are() -> None:
    ((first, second, third),) = lines(to_svg(Plot("step", "loss", [Curve("a", [0, 5, 10], [1, 3, 2])])))
    assert first[0] < second[0] < third[0]
    assert second[0] == pytest.approx((first[0] + third[0]) / 2, abs=0.1)
    assert second[1] < third[1] < first[1]  # up is less


def test_everything_drawn_is_inside_the_chart() -> None:
    curve = Curve("a", [1, 5, 15, 50], [1e4, -2e6, 3.5, 0], low=[0, -3e6, 0, -1], high=[2e4, 0, 9, 1])
    svg = to_svg(Plot("x", "y", [curve], level=("zero", 0), x_ticks=[1, 5, 15, 50]))
    ((*points,),) = lines(svg)
    assert all(0 <= x <= plots.WIDTH and 0 <= y <= plots.HEIGHT for x, y in points)
    assert texts(svg)[-2:] == ["a", "zero"]


def test_a_chart_follows_the_page_and_loads_and_runs_nothing() -> None:
    for plot in EVERY_KIND:
        svg = to_svg(plot)
        assert "var(--k0)" in svg
        assert not re.search(r"#[0-9a-f]{6}|font|<style|<script|http|xlink|<!--", svg)


def test_the_same_plot_is_the_same_bytes_and_another_shares_no_id() -> None:
    one, other = EVERY_KIND[0], EVERY_KIND[3]
    assert to_svg(one) == to_svg(one)
    ids = [set(re.findall(r' id="([^"]+)"', to_svg(plot))) for plot in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'href="#([^"]+)"', to_svg(one))) == ids[0]


def test_outliers_are_clipped_at_the_axes_and_named() -> None:
    svg = to_svg(Plot("step", "loss", [Curve("a", range(50), [80, *([1, 2] * 24), 1])]))
    assert "clipped: 80" in texts(svg)
    (clip,) = set(re.findall(r'clip-path="url\(#([^)]+)\)"', svg))
    assert f'<clipPath id="{clip}"><rect x="58" y="28"' in svg


def test_a_logarithmic_axis_of_less_than_two_decades_has_ticks_between_powers_of_ten() -> None:
    def ticks(values: list[float]) -> set[str]:
        return set(texts(to_svg(Plot("step", "error", [Curve("a", [0, 1, 2], values)], y_log=True))))

    assert {"0.2", "0.5", "1", "2", "5"} <= ticks([0.2, 1, 6])
    assert ticks([0.1, 1, 100]).isdisjoint({"0.2", "5", "20", "50"})


def test_the_interval_of_a_single_point_is_drawn() -> None:
    svg = to_svg(Plot("step", "return", [Curve("a", [3], [5], [4], [6])], level=("random", 0)))
    (top, bottom) = (28 + (210 - 28) * (6.3 - value) / 6.6 for value in (6, 4))  # axes from -0.3 to 6.3
    assert [(242, pytest.approx(bottom, abs=0.1)), (242, pytest.approx(top, abs=0.1))] in lines(svg)


def test_a_chart_says_in_words_what_it_shows() -> None:
    plot = Plot("generation", "<return>", [Curve("ours", [0, 1], [1, 2.5])], level=("random", -20))
    attributes = ElementTree.fromstring(to_svg(plot)).attrib
    assert attributes["role"] == "img"
    assert attributes["aria-label"] == "<return> over generation: ours from 1 to 2.5; random -20"
    assert describe(Plot("a", "b", [Scatter([1], [2])], note="no correlation")) == "b against a: no correlation"


def test_names_are_neither_markup_nor_formulas_and_figures_keep_their_digits() -> None:
    svg = to_svg(Plot("<b>", "y", [Curve("run$a_1$", [0.125, 0.375], [1, 2])]))
    assert {"<b>", "run$a_1$", "0.15"} <= set(texts(svg))


def test_names_of_any_bytes_can_be_drawn() -> None:
    name = "P\udcff\x1b[31m"
    plot = Plot(name, name, [Curve(name, [1, 2], [3, 4]), Histogram(name, [1, 2])], name, (name, 3))
    assert Image.open(io.BytesIO(to_png([plot], name))).size[0] > 500
    assert "P\\udcff\\x1b[31m" in texts(to_svg(plot))


def test_what_is_not_a_number_is_left_out_and_nothing_gives_no_chart() -> None:
    ((*kept,),) = lines(to_svg(Plot("x", "y", [Curve("a", [0, 1, 2], [1, math.nan, 2])])))
    assert len(kept) == 2
    assert to_svg(Plot("x", "y", [Curve("a", [], [])])) == ""
    assert to_svg(Plot("x", "y", [Curve("a", [0], [math.inf])])) == ""
    assert to_svg(Plot("x", "y", [Scatter([], [])])) == ""


def test_a_long_curve_is_thinned() -> None:
    values = [math.sin(k) for k in range(100_000)]
    ((*kept,),) = lines(to_svg(Plot("x", "y", [Curve("a", range(100_000), values)])))
    assert 200 <= len(kept) <= plots.POINTS


def test_numbers_are_short() -> None:
    assert [short(value) for value in (1200, 3.5, 0.0123, 5e-5, 0)] == ["1,200", "3.5", "0.0123", "5e-05", "0"]
