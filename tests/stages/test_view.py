import base64
import html.parser
import io
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import make_episode
from tests.stages.conftest import Output
from wm.report import episode_page
from wm.report.episode_page import COLUMNS, EpisodeCard, episodes_page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


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


def test_a_page_works_in_a_browser(workspace: Path, output: Output) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the path")
    output("view", "data/d.zarr", "--out", "page.html")
    options = ["--headless", "--disable-gpu", "--dump-dom"]
    options += ["--no-sandbox"] if os.name == "posix" and os.getuid() == 0 else []
    done = subprocess.run(
        [browser, *options, (workspace / "page.html").as_uri()], capture_output=True, text=True, timeout=60
    )
    assert 'data-ready="12"' in done.stdout, done.stderr[-500:]
    assert done.stdout.count("step 0 of ") == 12


@pytest.mark.parametrize(
    ("episodes", "code", "sentence"),
    [
        ("a-b", 64, "expected numbers and ranges"),
        ("99", 66, "has no episode 99"),
        ("5-3", 64, "smaller first"),
    ],
)
def test_episodes_that_cannot_be_are_one_sentence(
    workspace: Path, output: Output, episodes: str, code: int, sentence: str
) -> None:
    assert sentence in output("view", "data/d.zarr", "--episodes", episodes, code=code)


def test_a_player_has_every_frame_in_order() -> None:
    episode = make_episode(0, rows=100)
    page = episodes_page("t", [], [EpisodeCard.of(episode)], 1).decode()
    address = re.search(r"background-image:url\(data:image/png;base64,([^)]+)\)", page)
    assert address
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(address[1]))))
    frames = sheet.reshape(-1, 32, COLUMNS, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)
    assert np.array_equal(frames[:100], episode.frames)
    assert 'max="99"' in page
    assert "plays the first" not in page


def test_a_page_says_how_many_frames_it_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_page, "PAGE_FRAMES", 240)
    cards = [EpisodeCard.of(make_episode(index, rows)) for index, rows in enumerate((130, 50))]
    page = episodes_page("t", [], cards, 2).decode()
    assert "up to 120 frames of each, every frame in order" in page
    assert page.count("plays the first 120 of 130 frames") == 1
    assert page.count("plays the first") == 1
