import json
from pathlib import Path

import pytest

from stages.evaluate import evaluate
from stages.session import Session
from tests.conftest import SLUG
from wm.settings import EvaluateSettings


def test_the_random_policy_can_be_scored_alone(tmp_path: Path) -> None:
    session = Session("CartPole", run=tmp_path, workers=1)
    result = evaluate(session, EvaluateSettings(agent="random", episodes=20))
    assert result.path == tmp_path / "evaluation" / "random"
    assert result.metrics["mean"] == pytest.approx(22, abs=10)  # CartPole under random actions
    assert "(preview, n=20)" in result.summary
    assert evaluate(session, EvaluateSettings(agent="random", episodes=20)).status == "up to date"


def test_every_artifact_records_the_renderer_of_its_frames(chain: Path) -> None:
    for name in ("vae", "latents", "mdnrnn", "controller", "dream", "evaluation/controller"):
        body = json.loads((chain / "runs" / SLUG / name / "manifest.json").read_text())
        assert body["provenance"]["render"] == "exact", name
