import html.parser
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.stages.conftest import Output

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
