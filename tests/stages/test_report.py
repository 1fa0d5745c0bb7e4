"""report and compare, on a chain that was really run."""

import json
import re
import shutil
import signal
import time
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.browser import Browser, find_browser
from stages.cli import run
from tests.conftest import SLUG, TINY, outcome
from tests.conftest import run as wm
from tests.faults.test_edited_work import unfinish
from tests.report.layout import faults
from wm.artifacts import manifest
from wm.report.agent_film import FILM
from wm.report.document import Paragraph, Table
from wm.report.run_chapter import chapter
from wm.report.run_summary import RunSummary, overview
from wm.units import format_duration

WITHOUT_DREAM = shutil.ignore_patterns("dream")  # whose charts take long to draw
BROWSER = find_browser()


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


@pytest.mark.slow
def test_the_page_plays_the_test_episodes_that_were_scored(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "run", ignore=WITHOUT_DREAM)
    monkeypatch.chdir(tmp_path)
    assert run(["report", "run"]) == 0
    assert f"add --env {TINY}" in Path("run/report.html").read_text()  # a run does not import modules
    assert run(["report", "run", "--env", TINY]) == 0
    text, films = Path("run/report.html").read_text(), RunSummary.of(Path("run")).films
    assert text.count('<section class="player"') == len(films) == 2
    score = json.loads(Path("run/evaluation/controller/score.json").read_text())
    assert [film.episode_return for film in films] == [score["returns"][film.episode] for film in films]
    assert min(score["returns"]) == films[1].episode_return
    written = (Path("run/film") / "manifest.json").stat().st_mtime_ns
    assert run(["report", "run"]) == 0  # nothing is played again
    assert Path("run/report.html").read_text().count('<section class="player"') == 2
    assert (Path("run/film") / "manifest.json").stat().st_mtime_ns == written


def test_an_episode_that_cannot_be_repeated_is_no_film(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "run", ignore=WITHOUT_DREAM)
    folder = tmp_path / "run" / "evaluation" / "controller"
    body = json.loads((folder / "manifest.json").read_text())
    body["metrics"]["returns"] = [value + 1 for value in body["metrics"]["returns"]]
    body["metrics"]["mean"] += 1
    manifest.write(folder, {k: v for k, v in body.items() if k not in ("files", "sha256")}, ["score.json"])
    monkeypatch.chdir(tmp_path)
    assert run(["report", "run", "--env", TINY]) == 0
    text = Path("run/report.html").read_text()
    assert "The film is left out: test episode" in text
    assert '<section class="player"' not in text
    assert not Path("run/film").exists()


def test_the_verdicts_come_first(chain: Path) -> None:
    _, table, *_ = islice(chapter(RunSummary.of(chain / "runs" / SLUG)), 2)
    assert isinstance(table, Table)
    rows = dict(map(tuple, table.rows))
    assert list(rows) == ["score", "dream's events"]
    assert re.search(r"; the random policy -?\d.*: .* than random", rows["score"])


def test_a_verdict_on_events_says_whose_episodes_were_dreamt(chain: Path) -> None:
    """M is judged on held-out episodes, a dream on the agent's."""
    texts = [block for block in chapter(RunSummary.of(chain / "runs" / SLUG)) if isinstance(block, Paragraph)]
    labels = [block.strong for block in texts if block.strong.startswith("Verdict on")]
    assert labels == ["Verdict on held-out episodes", "Verdict on the controller's episodes"]


def test_the_cost_is_in_the_order_of_making_and_adds_up_to_the_wall_time_shown(chain: Path) -> None:
    summary = RunSummary.of(chain / "runs" / SLUG)
    blocks = list(chapter(summary))
    cost = next(block for block in blocks if isinstance(block, Table) and block.header[0] == "artifact")
    made = [row[0] for row in cost.rows]
    order = ["episodes", "vae", "latents", "mdnrnn", "controller", "dream", "evaluation/controller"]
    assert [name for name in made if name in order] == order
    assert summary.collecting_seconds > 0
    finished = [artifact.wall_seconds for artifact in summary.artifacts.values() if artifact.folder.name != FILM]
    total = summary.collecting_seconds + sum(finished)
    assert summary.wall_seconds("controller") == pytest.approx(total)
    shown = format_duration(summary.wall_seconds("controller"))  # `total`, added in another order, may round otherwise
    assert overview([summary]).rows[0][-1] == shown


def test_a_live_page_ends_when_the_run_is_evaluated_and_on_a_signal(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("controller", "evaluation"):  # the others would only be drawn
        shutil.copytree(chain / "runs" / SLUG / name, tmp_path / "run" / name)
    monkeypatch.chdir(tmp_path)
    assert run(["report", "run", "--live", "--no-film", "--every", "1"]) == 0
    assert "data-refresh=" not in Path("run/report.html").read_text()
    unfinish(tmp_path / "run" / "controller")
    seen = []

    def look(seconds: float) -> None:
        seen.append(Path("run/report.html").read_text())
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(time, "sleep", look)
    assert run(["report", "run", "--live", "--no-film"]) == 0
    assert ["data-refresh=" in text for text in seen] == [True]
    assert "data-refresh=" not in Path("run/report.html").read_text()


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
    assert list(chapter(summary))


def test_an_environment_that_no_run_is_of_is_refused(chain: Path) -> None:
    done = outcome(chain, "report", f"runs/{SLUG}", "--env", "tests.tiny:Steered-v0")
    assert done.returncode == 64
    assert f"--env is tests.tiny:Steered-v0 but no run of the page is of it; expected one of {TINY}," in done.stderr


def test_where_there_is_no_run_it_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(tmp_path)]) == 66
    assert "there is no run in" in capsys.readouterr().err
    assert run(["compare", str(tmp_path)]) == 66
    assert run(["compare", str(tmp_path / "nothing")]) == 66


def test_compare_draws_no_empty_plot_of_runs_without_c(chain: Path, tmp_path: Path) -> None:
    without = shutil.ignore_patterns("dream", "controller*", "evaluation", "film")
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "a", ignore=without)
    assert wm(tmp_path, "compare", "a").stdout.splitlines()[-1] == (
        "no plot: C was not validated in any of them; terms: docs/glossary.md"
    )
    assert json.loads(wm(tmp_path, "compare", "a", "--json", "--out", "new/b.png").stdout)["plot"] is None
    assert not list(tmp_path.rglob("*compare.png"))
    assert not (tmp_path / "new").exists()


def test_compare_shows_figures_side_by_side_and_fits_80_columns(chain: Path, tmp_path: Path) -> None:
    ours, other = chain / "runs" / SLUG, tmp_path / "other"
    shutil.copytree(ours, other)
    facts = json.loads(wm(tmp_path, "compare", str(ours), str(ours), "--json").stdout)["runs"]
    assert len(facts) == 1  # the same run twice is one
    text = wm(tmp_path, "compare", str(ours), str(other), "--out", "two.png", COLUMNS="80").stdout
    assert "test return" in text
    assert "M: NLL per dimension" in text
    assert text.endswith("plot: two.png; terms: docs/glossary.md\n")
    assert max(map(len, text.splitlines())) <= 80
    assert (tmp_path / "two.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_nothing_is_cut_or_hard_to_read_on_a_phone_and_a_laptop_light_and_dark(chain: Path, tmp_path: Path) -> None:
    """A run with every stage: two films, the dream, and a C of its own for each search."""
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "run")
    wm(tmp_path, "report", "run", "--env", TINY)
    with Browser(str(BROWSER)) as browser:
        ready = "playersReady.then(() => [players.length, charts.length])"
        assert not list(faults(browser, tmp_path / "run" / "report.html", ready))
        players, charts = browser.evaluate(ready)
        assert players == 2
        assert charts > 5
        assert browser.messages == []
