import json
import shutil
from pathlib import Path

from tests.conftest import SLUG
from wm.report.comparison import compare, different_settings, short_names
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
