import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from stages.evaluate import player_of
from stages.session import Session
from tests.conftest import SLUG, arguments, command, environment, run
from wm.pretrained import load_all
from wm.report import recording as showing
from wm.report.recording import MOST_FRAMES, film_job
from wm.report.video import can_film
from wm.rollouts.players import evaluation_jobs


def test_test_episodes_are_filmed_and_end_with_the_score(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shown = json.loads(run(tmp_path, *arguments("evaluate", "--record-video", "2", "--json")).stdout)
    assert shown["status"] == "up to date"  # films are no part of a score
    films = [Path(path) for path in shown["pictures"] if path.endswith(".gif")]
    assert [path.name for path in films] == ["episode-0.gif", "episode-1.gif"]
    assert len([path for path in shown["pictures"] if path.endswith(".mp4")]) == (2 if can_film() else 0)
    session = Session("tests.tiny:Tiny-v0", run=tmp_path / "runs" / SLUG)
    player = player_of(*load_all(session.workspace))
    for number, path in enumerate(films):
        filmed = film_job(player, evaluation_jobs(2)[number])
        assert filmed.returns[-1] == pytest.approx(shown["metrics"]["returns"][number], abs=1e-4)
        with Image.open(tmp_path / path) as movie:
            assert movie.n_frames == len(filmed.frames) <= MOST_FRAMES  # type: ignore[attr-defined]
        monkeypatch.setattr(showing, "MOST_FRAMES", 7)
        few = film_job(player, evaluation_jobs(2)[number])
        assert len(few.frames) <= 7 < len(filmed.frames)
        assert (few.steps[-1], few.returns[-1]) == (filmed.steps[-1], filmed.returns[-1])
        monkeypatch.undo()


def test_without_a_display_it_says_so_and_goes_on(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert "no window: there is no display" in run(chain, *arguments("evaluate", "--visualize")).stderr


@pytest.mark.skipif(not os.environ.get("DISPLAY") and not shutil.which("xvfb-run"), reason="there is no display")
def test_an_episode_is_shown_in_a_window(chain: Path) -> None:
    prefix = [] if os.environ.get("DISPLAY") else ["xvfb-run", "-a"]
    words = [*prefix, *command(*arguments("evaluate", "--visualize"))]
    done = subprocess.run(words, cwd=chain, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "shown: " in done.stderr
