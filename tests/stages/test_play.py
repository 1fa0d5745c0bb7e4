"""`wm play`: the page of a run, and what is refused."""

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import SLUG, TINY, outcome, run
from tests.report.play.reference import parts_of
from wm.report.document import Link, Paragraph
from wm.report.sections import play_section

PLAY = ("play", "--env", TINY)
PAGE = f"runs/{SLUG}/play.html"


@pytest.fixture
def made(chain: Path, tmp_path: Path) -> Path:
    """A copy of a folder in which every stage has been run."""
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    return tmp_path


def refused(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code and the one sentence; no page is left, whole or half."""
    done = outcome(folder, *words)
    (line,) = done.stderr.strip().splitlines()
    assert not list(folder.rglob("*play*"))
    return done.returncode, line


def test_the_page_of_a_run_lies_in_it_and_the_report_links_it(made: Path) -> None:
    done = run(made, *PLAY, "--temperature", "0.5")
    assert done.stdout.strip() == PAGE
    assert done.stderr.startswith(f"play {TINY}: ")
    world, weights = parts_of((made / PAGE).read_text())
    assert (world["env"], world["temperature"], world["maxSteps"]) == (TINY, 0.5, 24)
    assert world["controller"]["head"] == "argmax"
    assert len(weights) > 1000
    run(made, "report", f"runs/{SLUG}")
    assert '<a href="play.html">Play inside the dream of' in (made / f"runs/{SLUG}/report.html").read_text()
    before = (made / PAGE).read_bytes()
    assert run(made, *PLAY, "--temperature", "0.5", "--out", "new/page.html").stdout.strip() == "new/page.html"
    assert (made / "new/page.html").read_bytes() == before


def test_a_report_tells_a_page_that_is_older_than_the_models_of_its_run(made: Path) -> None:
    folder = made / "runs" / SLUG

    def told() -> str:
        return " ".join(block.text for block in play_section("Tiny", page) if isinstance(block, Paragraph))

    run(made, *PLAY)
    page, controller = folder / "play.html", folder / "controller"
    assert told() == ""
    controller.rename(folder / "away")
    older = "The page is older than the controller of this run; `wm play` writes it again."
    assert told() == older
    page.write_text(re.sub("controller=[0-9a-f]{64}", "controller=none", page.read_text()))
    assert told() == ""  # as it was written without C
    (folder / "away").rename(controller)
    assert told() == older
    written = page.read_text()
    models = f"../{SLUG}/vae={'0' * 64} /etc={'0' * 64} vae=short"
    page.write_text(re.sub('(?<=name="wm-models" content=")[^"]*', models, written))
    assert "older than" in told()
    page.write_text(re.sub('(?<=name="wm-models" content=")[^"]*', "", written))
    assert "does not say which V, M and C" in told()
    page.write_text("<script>alert(1)</script>")
    assert "is not what this version of `wm play` writes, so it is not linked" in told()
    assert not [block for block in play_section("Tiny", page) if isinstance(block, Link)]


def test_without_a_controller_only_the_person_drives(made: Path) -> None:
    shutil.rmtree(made / "runs" / SLUG / "controller")
    done = run(made, *PLAY)
    assert "has no controller, so only the person drives" in done.stderr
    assert parts_of((made / PAGE).read_text())[0]["controller"] is None


def test_an_untrained_memory_and_a_dreamer_cannot_dream(made: Path) -> None:
    run(made, "train-controller", "--env", TINY, "--memory", "untrained", "--name", "other", "--popsize", "4",
        "--max-generations", "1", "--set", "validation_episodes=2")  # fmt: skip
    code, line = refused(made, *PLAY, "--agent", "other")
    assert code == 64
    assert "has an untrained memory, which cannot dream; name another with --agent" in line
    code, line = refused(made, *PLAY, "--agent", "dreamer")
    assert code == 64
    assert "is a Dreamer" in line


def test_an_agent_that_does_not_exist_and_a_run_without_m_say_what_makes_them(made: Path) -> None:
    code, line = refused(made, *PLAY, "--agent", "mine")
    assert code == 66
    assert "train-controller" in line
    shutil.rmtree(made / "runs" / SLUG / "mdnrnn")
    code, line = refused(made, *PLAY)
    assert code == 66
    assert "wm train-mdnrnn --env" in line


@pytest.mark.parametrize(
    "damaged",
    ["vae/weights.safetensors", "mdnrnn/model.json", "controller/weights.safetensors", "latents/*/means/c.*"],
)
def test_a_damaged_run_is_one_sentence(made: Path, damaged: str) -> None:
    path = next(path for path in (made / "runs" / SLUG).glob(damaged) if path.is_file())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    code, line = refused(made, *PLAY)
    assert code == 65
    assert damaged.split("/")[0] in line


def test_a_damaged_dataset_is_one_sentence(made: Path) -> None:
    path = next(path for path in (made / "data").rglob("frames/c.*") if path.is_file())
    path.write_bytes(path.read_bytes()[:-20])
    code, line = refused(made, *PLAY)
    assert code == 65
    assert "frames" in line or "part-" in line


def test_a_page_that_does_not_fit_the_disk_leaves_the_old_one(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(made, *PLAY)
    before = (made / PAGE).read_bytes()
    monkeypatch.setattr("wm.artifacts.disk.shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    assert outcome(made, *PLAY, "--temperature", "2").returncode == 74
    assert (made / PAGE).read_bytes() == before


def test_an_agent_is_a_name_and_no_path(made: Path) -> None:
    code, line = refused(made, *PLAY, "--agent", "../other/controller")
    assert code == 64
    assert "--agent" in line


def test_temperatures_that_cannot_be_are_refused(made: Path) -> None:
    code, line = refused(made, *PLAY, "--temperature", "0")
    assert code == 64
    assert "--temperature" in line


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--example", "--real"], "--real means nothing to --example; leave one of them out"),
        (["--example", "--env", "Pong"], "--env means nothing to --example"),
        (["--env", "Pong", "--real", "--agent", "c"], "--agent means nothing to --real"),
        (["--env", "Pong", "--episodes", "2"], "--episodes means nothing to a page of a dream"),
        (["--env", "Pong", "--temperature", "nan"], "--temperature is nan; expected a number from 0.05 to 2."),
        (["--env", ""], "--env is empty; expected the name of an environment"),
    ],
)
def test_options_that_would_be_ignored_are_refused(words: list[str], sentence: str, tmp_path: Path) -> None:
    done = outcome(tmp_path, "play", *words)
    assert (done.returncode, sentence in done.stderr) == (64, True), done.stderr
    assert not list(tmp_path.iterdir())
