import json
from dataclasses import replace
from pathlib import Path

import pytest

from stages.evaluate import evaluate, player_of, protocol_of
from stages.session import Session
from tests.conftest import SLUG, TINY
from wm.envs.registry import EnvConfig
from wm.pretrained import load_all
from wm.settings import EvaluateSettings


def test_the_random_policy_can_be_scored_alone(tmp_path: Path) -> None:
    session = Session("CartPole", run=tmp_path, workers=1)
    result = evaluate(session, EvaluateSettings(agent="random", episodes=20))
    assert result.path == tmp_path / "evaluation" / "random"
    assert result.metrics["mean"] == pytest.approx(22, abs=10)  # CartPole under random actions
    assert "(preview, n=20)" in result.summary
    assert evaluate(session, EvaluateSettings(agent="random", episodes=20)).status == "up to date"


def test_the_unmodified_environment_is_played_whoever_drew_the_training_frames(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(chain)
    vae, mdnrnn, controller = load_all(Session(TINY).workspace)
    assert vae.env.render == "exact"
    assert player_of(vae, mdnrnn, controller).env == replace(vae.env, render="gymnasium")


def test_every_artifact_says_who_drew_the_frames_it_was_made_from(chain: Path) -> None:
    for name in ("vae", "latents", "mdnrnn", "controller", "dream", "evaluation/controller"):
        body = json.loads((chain / "runs" / SLUG / name / "manifest.json").read_text())
        assert body["provenance"]["render"] == "exact", name


def test_the_protocol_says_what_the_agent_sees_and_does_that_the_environment_does_not() -> None:
    assert protocol_of(EnvConfig("LunarLander")) == "gymnasium LunarLander-v3 unmodified, 1000-step limit"
    assert "our agent sees grey-level differences" in protocol_of(EnvConfig("LunarLander", observation="motion"))
    assert "our agent sees the difference to a slowly" in protocol_of(EnvConfig("Breakout", observation="foreground"))
    assert "holds each action for 3 steps" in protocol_of(EnvConfig("CarRacing", action_repeat=3))
    assert "our agent serves" in protocol_of(EnvConfig("Breakout"))
