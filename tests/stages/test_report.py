"""report and compare, on a chain that was really run."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stages.cli import run
from tests.conftest import SLUG
from tests.conftest import run as wm
from tests.faults.test_edited_work import unfinish
from wm.report.run_summary import RunSummary

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def test_the_page_has_every_part_of_the_chain_and_loads_nothing(chain: Path) -> None:
    page, summary = wm(chain, "report").stdout.split()
    assert (page, summary) == ("runs/report.html", "runs/report.md") or page.endswith(f"{SLUG}/report.html")
    text = (chain / page).read_text()
    for words in ("C, the controller", "V, the autoencoder", "M, the predictor", "the dream and the real environment"):
        assert f"{SLUG}: {words}" in text
    assert ": cost" in text
    assert "Too few episodes to be quoted" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert text.count("data:image/gif") == 1
    assert all(re.search(r'alt="[^"]{20,}"', image) for image in re.findall(r"<img [^>]*>", text))
    assert (chain / summary).read_text().count("\n| ") > 10
    (chain / page).unlink()
    (chain / summary).unlink()


def test_an_unfinished_run_is_reported_as_far_as_it_is(chain: Path, tmp_path: Path) -> None:
    going = tmp_path / "runs" / SLUG
    shutil.copytree(chain / "runs" / SLUG, going)
    for name in ("dream", "evaluation"):
        shutil.rmtree(going / name)
    unfinish(going / "controller")
    with open(going / "controller.partial" / "generations.jsonl", "a") as file:
        file.write('{"generation": 99, "ret')  # as a reader sees a line that is being written
    text = Path(json.loads(wm(tmp_path, "report", "--json").stdout)["html"])
    text = (tmp_path / text).read_text()  # type: ignore[assignment]
    assert "Unfinished: controller." in text
    assert "Validation in the real environment" in text
    assert "the dream and the real environment" not in text
    assert "not yet" in text


def test_a_damaged_artifact_is_left_out(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG, tmp_path / SLUG)
    (tmp_path / SLUG / "vae" / "manifest.json").write_text("{}")
    summary = RunSummary.of(tmp_path / SLUG)
    assert "vae" not in summary.artifacts
    assert "mdnrnn" in summary.artifacts
    assert list(summary.blocks())


def test_where_there_is_no_run_it_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(tmp_path)]) == 66
    assert "there is no run in" in capsys.readouterr().err
    assert run(["compare", str(tmp_path)]) == 66
    assert run(["compare", str(tmp_path / "nothing")]) == 64


def test_compare_shows_figures_side_by_side_and_fits_80_columns(chain: Path, tmp_path: Path) -> None:
    ours, other = chain / "runs" / SLUG, tmp_path / "other"
    shutil.copytree(ours, other)
    facts = json.loads(wm(tmp_path, "compare", str(ours), str(ours), "--json").stdout)["runs"]
    assert len(facts) == 1  # the same run twice is one
    text = wm(tmp_path, "compare", str(ours), str(other), "--out", "two.png", COLUMNS="80").stdout
    assert "test return" in text
    assert "M: NLL per dimension" in text
    assert max(map(len, text.splitlines())) <= 80
    assert (tmp_path / "two.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(BROWSER is None, reason="no browser")
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_opens_in_a_browser_and_is_no_wider_than_it(chain: Path, tmp_path: Path, width: int) -> None:
    wm(chain, "report", "--out", str(tmp_path / "report.html"))
    probe = tmp_path / "probe.html"
    measure = "<script>document.title=document.documentElement.scrollWidth+' of '+window.innerWidth</script></body>"
    probe.write_text((tmp_path / "report.html").read_text().replace("</body>", measure))
    words = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={max(width, 500)},900"]
    done = subprocess.run([*words, "--dump-dom", probe.as_uri()], capture_output=True, text=True, timeout=120)
    widths = re.search(r"<title>(\d+) of (\d+)</title>", done.stdout)
    assert widths, done.stderr[-500:]
    assert int(widths[1]) <= int(widths[2])
