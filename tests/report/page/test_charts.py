"""Charts in a real browser: the same description gives the drawing and the values that are told."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.browser import Browser, find_browser
from wm.report.document import Chart, Picture, Table, to_html
from wm.report.film_strip import animation
from wm.report.plots import Curve, Plot, Scatter, draw, to_svg

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
TOLD = "charts[{}].note.textContent.split('\\n')"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("charts")
    curves = [Curve("a", [0, 10, 20], [1, 3, 2], [0, 2, 1], [2, 4, 3]), Curve("b", [0, 10, 20], [5, 6, 7])]
    (folder / "strip.png").write_bytes(draw(curves, "t", "x", "y"))
    frames = np.random.default_rng(0).integers(0, 255, (4, 16, 16, 3), np.uint8)
    (folder / "dream.gif").write_bytes(animation([("real", frames)], ["0", "1", "2", "3"], 10))
    blocks = [
        Chart(to_svg(Plot("step", "loss", curves, level=("goal", 4))), "curves"),
        Chart(to_svg(Plot("x", "y", [Scatter([1, 2, 3], [3, 1, 2])])), "points"),
        Picture(folder / "strip.png", "a strip", "A strip."),
        Picture(folder / "dream.gif", "a dream", "A dream."),
        Table([f"column {k}" for k in range(9)], [["a long name of a row", *["-12.34 ± 5.67"] * 8]]),
        Table(["a"] * 7, [["0" * 9, *["0" * 6] * 6]]),  # the widest that a phone shows as a table
    ]
    path = folder / "report.html"
    path.write_bytes(to_html("t", blocks, folder))
    return path


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[Browser]:
    with Browser(str(BROWSER)) as opened:
        yield opened


def test_the_pointer_and_the_arrow_keys_tell_values(browser: Browser, page: Path) -> None:
    browser.open(page)
    place = browser.evaluate("""(() => {
      const {left, top, width, height} = charts[0].svg.getBoundingClientRect();
      const {x, y} = {x: Chart.place(10, charts[0].x), y: Chart.place(3, charts[0].y)};
      return {x: left + width * x / 440, y: top + height * y / 250};
    })()""")
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", **place)
    assert browser.evaluate(TOLD.format(0)) == ["step 10", "a: 3 (2 to 4)", "b: 6"]
    browser.evaluate("charts[1].svg.focus()")
    for _ in range(2):
        browser.key("ArrowRight", "keyDown")
    assert browser.evaluate(TOLD.format(1)) == ["x 2", "y: 1"]
    assert browser.messages == []


def test_entries_of_a_legend_hide_their_series(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.evaluate("[...charts[0].svg.querySelectorAll('.n0')].at(-1).dispatchEvent(new MouseEvent('click'))")
    shown = "[0, 1].map(k => [...charts[0].svg.querySelectorAll(`.s${k}`)].map(each => each.style.display))"
    assert browser.evaluate(shown) == [["none", "none"], [""]]
    browser.evaluate("charts[0].show({x: 200, y: 100})")
    assert browser.evaluate(TOLD.format(0)) == ["step 10", "b: 6"]


def test_pictures_open_large_and_nothing_moves_until_it_is_asked_to(browser: Browser, page: Path) -> None:
    browser.open(page)
    moving = "[document.querySelector('.moving img').hidden, document.querySelector('.moving canvas').hidden]"
    assert browser.evaluate(moving) == [True, False]
    browser.evaluate("document.querySelector('.moving button').click()")
    assert browser.evaluate(moving) == [False, True]
    browser.evaluate("document.querySelector('.still img').focus()")
    browser.key("Enter", "keyDown")
    assert browser.evaluate("[dialog.open, dialog.firstChild.alt]") == [True, "a strip"]


def test_at_400_pixels_every_cell_is_in_view(browser: Browser, page: Path) -> None:
    browser.open(page, 400)
    places = "[...document.querySelectorAll('td, svg, img')].map(each => each.getBoundingClientRect().right)"
    assert max(browser.evaluate(places)) <= 400
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
    assert browser.evaluate("contents.open") is False
    displayed = "[...document.querySelectorAll('table')].map(each => getComputedStyle(each).display)"
    assert browser.evaluate(displayed) == ["block", "table"]
