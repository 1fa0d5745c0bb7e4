import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.evaluate import evaluate
from stages.session import Session
from tests.conftest import SLUG, TINY, outcome
from wm.errors import BadData, Stopped
from wm.evaluation.episode_log import LOG
from wm.evaluation.score import PORTION
from wm.settings import EvaluateSettings


def test_the_random_policy_can_be_scored_alone(tmp_path: Path) -> None:
    session = Session("CartPole", run=tmp_path, workers=1)
    result = evaluate(session, EvaluateSettings(agent="random", episodes=20))
    assert result.path == tmp_path / "evaluation" / "random"
    assert result.metrics["mean"] == pytest.approx(22, abs=10)  # CartPole under random actions
    assert "(preview, n=20)" in result.summary
    assert evaluate(session, EvaluateSettings(agent="random", episodes=20)).status == "up to date"


def test_what_is_no_agent_is_refused_with_those_there_are(chain: Path) -> None:
    folder = f"runs/{SLUG}"
    for stage, name in (("evaluate", "vae"), ("dream", "random"), ("dream", "mdnrnn"), ("evaluate", "dream-2")):
        done = outcome(chain, stage, "--env", TINY, "--agent", name)
        assert done.returncode == 64
        assert done.stderr == (
            f"wm: {folder}/{name} is no trained agent; expected a controller or a Dreamer, of which the run has "
            "controller.\n"
        )


def test_every_artifact_records_the_renderer_of_its_frames(chain: Path) -> None:
    for name in ("vae", "latents", "mdnrnn", "controller", "dream", "evaluation/controller"):
        body = json.loads((chain / "runs" / SLUG / name / "manifest.json").read_text())
        assert body["provenance"]["render"] == "exact", name


class StopsAtTheFirst:
    """Progress that asks the work to stop when a part of it is done."""

    def update(self, done: int, **_: str) -> None:
        raise Stopped(signal.SIGTERM)


def stopped_run(run: Path) -> Path:
    """The log of an evaluation of 20 episodes that was stopped after some."""

    @contextmanager
    def progress(*_: Any) -> Iterator[StopsAtTheFirst]:
        yield StopsAtTheFirst()

    session = Session("CartPole", run=run, workers=1, watched=lambda runtime: replace(runtime, progress=progress))
    with pytest.raises(Stopped):
        evaluate(session, EvaluateSettings(agent="random", episodes=20))
    return run / "evaluation" / "random.partial" / LOG


def test_a_stopped_evaluation_goes_on_with_the_episodes_it_lacks(tmp_path: Path) -> None:
    settings, messages = EvaluateSettings(agent="random", episodes=20), list[str]()
    whole = evaluate(Session("CartPole", run=tmp_path / "whole", workers=1), settings)
    log = stopped_run(tmp_path / "run")
    assert log.read_bytes().count(b"\n") == PORTION
    log.write_bytes(log.read_bytes() + b'{"key": 8, "episode_')  # as a kill leaves it
    session = Session(
        "CartPole", run=tmp_path / "run", workers=1, watched=lambda runtime: replace(runtime, log=messages.append)
    )
    resumed = evaluate(session, settings)
    assert resumed.status == "resumed"
    assert messages == [f"evaluate CartPole (random): resumes after {PORTION} episodes"]
    assert (resumed.path / "score.json").read_bytes() == (whole.path / "score.json").read_bytes()
    assert not (resumed.path / LOG).exists()


def test_an_edited_return_of_a_stopped_evaluation_is_refused(tmp_path: Path) -> None:
    log = stopped_run(tmp_path)
    log.write_bytes(log.read_bytes().replace(b'"episode_return": 1', b'"episode_return": 9', 1))
    with pytest.raises(BadData, match=r"episodes.jsonl, line \d does not agree with its digest; restore it, or remove"):
        evaluate(Session("CartPole", run=tmp_path, workers=1), EvaluateSettings(agent="random", episodes=20))


def test_a_score_without_sticky_actions_stands_beside_the_usual_one(tmp_path: Path) -> None:
    session = Session("Pong", run=tmp_path, workers=1)
    usual = evaluate(session, EvaluateSettings(agent="random", episodes=2, max_steps=50))
    other = evaluate(session, EvaluateSettings(agent="random", episodes=2, max_steps=50, sticky_actions=False))
    assert other.path == tmp_path / "evaluation" / "random-no-sticky"
    assert "no sticky actions, 1 to 30 no-ops at the start" in other.metrics["protocol"]
    assert usual.path.is_dir()
