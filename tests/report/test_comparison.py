import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import SLUG
from wm.report import comparison
from wm.report.comparison import compare, different_settings, plot_searches, short_names
from wm.report.run_summary import RunSummary


def test_runs_have_the_shortest_names_that_tell_them_apart() -> None:
    runs = [Path("runs/Pong"), Path("runs/Pong.round2")]
    assert short_names(runs) == ["Pong", "Pong.round2"]
    assert short_names([Path("a/runs/Pong"), Path("b/runs/Pong")]) == ["a/runs/Pong", "b/runs/Pong"]
    assert short_names(runs[:1]) == ["Pong"]


def test_settings_that_differ_from_the_first_run_are_listed_by_stage(chain: Path, tmp_path: Path) -> None:
    runs = [chain / "runs" / SLUG, tmp_path / "other"]
    shutil.copytree(*runs)
    path = runs[1] / "controller" / "manifest.json"
    body = json.loads(path.read_text())
    body["recipe"]["settings"]["popsize"] = 99
    facts = compare([RunSummary.of(run) for run in runs])
    assert not different_settings(facts)
    facts[1]["recipes"]["controller"] = body["recipe"]
    (entry,) = different_settings(facts)
    assert entry[0].endswith("other controller")
    assert "popsize" in entry[1]


def test_returns_in_the_dream_are_named_beside_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list[str]()
    monkeypatch.setattr(comparison, "draw", lambda curves, *labels: names.extend(curve.name for curve in curves))
    line = {"generation": 5, "in": "dream", "returns": [1.0], "validation": [1.0, 2.0]}
    runs = {"a": 0, "b": 60}  # environment steps of a validation
    plot_searches(
        [RunSummary(Path(run), {}, {}, [line | {"env_steps": steps}], None, []) for run, steps in runs.items()]
    )
    assert names == ["a (in the dream)", "b"]
