import base64
import html.parser
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.browser import Browser, find_browser
from tests.conftest import make_episode
from tests.report.layout import faults
from tests.stages.conftest import Output
from wm.actions import ActionSpace
from wm.episodes.schema import Episode
from wm.report import episode_page
from wm.report.episode_page import COLUMNS, DatasetPage, EpisodeCard

BROWSER = find_browser()


def test_a_page_needs_nothing_from_elsewhere_and_escapes_what_it_shows(workspace: Path, output: Output) -> None:
    page = Path(output("view", "data/d.zarr", "--episodes", "0,3-5").strip()).read_text()
    addresses = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            addresses.extend(str(value) for name, value in attributes if name in ("src", "href"))

    Reader().feed(page)
    assert len(addresses) == 4
    assert all(address.startswith("data:image/png;base64,") for address in addresses)
    assert "<b>sticky</b>" not in page
    assert "&lt;b&gt;sticky" in page
    assert "http" not in page.replace("http-equiv", "")


def test_datasets_that_differ_in_their_endings_have_pages_of_their_own(workspace: Path, output: Output) -> None:
    for name in ("d.old", "d.of.zarr"):
        shutil.copytree("data/d.zarr", f"data/{name}")
    pages = [output("view", f"data/{name}", "--episodes", "0").strip() for name in ("d.zarr", "d.old", "d.of.zarr")]
    assert pages == ["data/d.html", "data/d.old.html", "data/d.of.html"]


# What a player says of its step once the step's pictures are decoded and drawn.
SHOWN = """new Promise(done => {
  const player = players[1], look = () => player.number === Number(player.slider.value)
    ? done(player.section.querySelector("output").textContent) : setTimeout(look, 10);
  look();
})"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_page_plays_episodes_with_keys_and_shows_actions_and_labels(workspace: Path, output: Output) -> None:
    output("view", "data/d.zarr", "--out", "page.html")
    with Browser(str(BROWSER)) as browser:
        browser.open(workspace / "page.html")
        assert browser.evaluate("playersReady.then(() => players.length)") == 12
        assert browser.evaluate("players.some(player => player.playing)") is False
        browser.evaluate("players[1].section.focus()")
        for _ in range(3):
            browser.key("ArrowRight", "keyDown")
        assert browser.evaluate(SHOWN).startswith("step 3 of ")
        names = browser.evaluate("[...players[1].values.querySelectorAll('dt')].map(each => each.textContent)")
        assert names == ["reward", "return so far", "action", "a", "b"]
        browser.evaluate("document.querySelector('[data-by=return]').click()")
        order = browser.evaluate("[...document.querySelectorAll('main > section')].map(each => +each.dataset.return)")
        assert order == sorted(order, reverse=True)
        assert not list(faults(browser, workspace / "page.html", "playersReady.then(() => 0)"))
        assert browser.messages == []


@pytest.mark.parametrize(
    ("episodes", "code", "sentence"),
    [
        ("a-b", 64, "expected numbers and ranges"),
        ("9" * 5000, 64, "expected numbers and ranges"),
        ("²", 64, "expected numbers and ranges"),
        ("0-²", 64, "expected numbers and ranges"),
        ("99", 66, "has no episode 99"),
        ("5-3", 64, "smaller first"),
    ],
)
def test_episodes_that_cannot_be_are_one_sentence(
    workspace: Path, output: Output, episodes: str, code: int, sentence: str
) -> None:
    assert sentence in output("view", "data/d.zarr", "--episodes", episodes, code=code)


def render(*episodes: Episode) -> str:
    page = DatasetPage("t", [], "Pong", ActionSpace(count=3), ["<x>", "y"], len(episodes))
    return page.render([EpisodeCard.of(episode) for episode in episodes]).decode()


def test_a_player_has_every_frame_in_order() -> None:
    episode = make_episode(0, rows=100)
    page = render(episode)
    address = re.search(r'"data":"png;base64,([^"]+)"', page)
    assert address
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(address[1]))))
    frames = sheet.reshape(-1, 32, COLUMNS, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)
    assert np.array_equal(frames[:100], episode.frames)
    assert 'max="99"' in page
    assert "plays the first" not in page
    assert '"name":"\\u003cx>"' in page


def test_a_page_says_how_many_frames_it_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_page, "PAGE_FRAMES", 240)
    page = render(*(make_episode(index, rows) for index, rows in enumerate((130, 50))))
    assert "All 2 episodes, up to 120 frames of each, every frame in order. Sort by <button" in page
    assert page.count("plays the first 120 of 130 frames") == 1
    assert page.count("plays the first") == 1


def test_a_dataset_that_is_the_working_folder_gets_its_page_beside_it(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace / "data" / "d.zarr")
    output("view", ".")
    assert (workspace / "data" / "d.html").is_file()
