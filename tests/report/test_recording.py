import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from stages.session import Session
from tests.conftest import SLUG, arguments, command, environment, outcome, run
from wm.evaluation.score import open_agent
from wm.report import recording
from wm.report.recording import MAX_FRAMES, record_job
from wm.report.video import can_film
from wm.rollouts.players import PolicySpec, evaluation_jobs


def test_videos_of_test_episodes_end_with_their_returns(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shown = json.loads(run(tmp_path, *arguments("evaluate", "--record-video", "2", "--json")).stdout)
    assert shown["status"] == "up to date"  # videos are no part of a score
    videos = [Path(path) for path in shown["pictures"] if path.endswith(".gif")]
    assert [path.name for path in videos] == ["episode-0.gif", "episode-1.gif"]
    assert len([path for path in shown["pictures"] if path.endswith(".mp4")]) == (2 if can_film(print) else 0)
    session = Session("tests.tiny:Tiny-v0", run=tmp_path / "runs" / SLUG)
    spec = open_agent(session.workspace, "controller").spec
    assert isinstance(spec, PolicySpec)
    for number, path in enumerate(videos):
        whole = record_job(spec, evaluation_jobs(2)[number])
        assert whole.returns[-1] == pytest.approx(shown["metrics"]["returns"][number], abs=1e-4)
        with Image.open(tmp_path / path) as movie:
            assert movie.n_frames == len(whole.frames) <= MAX_FRAMES  # type: ignore[attr-defined]
        monkeypatch.setattr(recording, "MAX_FRAMES", 7)
        few = record_job(spec, evaluation_jobs(2)[number])
        assert len(few.frames) <= 7 < len(whole.frames)
        assert (few.steps[-1], few.returns[-1]) == (whole.steps[-1], whole.returns[-1])
        monkeypatch.undo()


@pytest.mark.parametrize("link", ["videos", "videos/controller"])
def test_videos_are_not_written_through_a_link(link: str, chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    outside, path = tmp_path / "outside", tmp_path / "runs" / SLUG / link
    outside.mkdir()
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside)
    done = outcome(tmp_path, *arguments("evaluate", "--record-video", "1"))
    assert done.returncode == 65
    assert f"{link} is a link" in done.stderr
    assert not list(outside.iterdir())


def test_without_a_display_it_logs_that_and_scores(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert "no window: there is no display" in run(chain, *arguments("evaluate", "--visualize")).stderr


@pytest.mark.skipif(not os.environ.get("DISPLAY") and not shutil.which("xvfb-run"), reason="there is no display")
@pytest.mark.slow
def test_an_episode_is_shown_in_a_window(chain: Path) -> None:
    prefix = [] if os.environ.get("DISPLAY") else ["xvfb-run", "-a"]
    words = [*prefix, *command(*arguments("evaluate", "--visualize"))]
    done = subprocess.run(words, cwd=chain, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "shown: " in done.stderr
