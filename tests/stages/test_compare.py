import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stages.compare import _table
from tests.conftest import SLUG, TINY, arguments, outcome, run
from wm.artifacts import manifest
from wm.report.run_summary import RunSummary, all_evaluated, overview
from wm.units import format_duration


def test_runs_that_do_not_fit_the_terminal_get_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[dict[str, Any]] = [
        {"name": f"Pong.round{number}", "figures": {"test return": f"-{number}.0 ± 0.7"}} for number in range(9)
    ]
    monkeypatch.setenv("COLUMNS", "80")
    text = _table(runs)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("test return") == 2
    assert all(run["name"] in text for run in runs)
    monkeypatch.setenv("COLUMNS", "200")
    assert _table(runs).count("test return") == 1


def test_a_figure_that_the_first_run_lacks_stands_where_the_other_runs_have_it() -> None:
    names = ("test return", "random policy", "V: squared error", "V: R2 of ball", "C: parameters")
    scored = dict.fromkeys(names, "1")
    runs: list[dict[str, Any]] = [
        {"name": "unscored", "figures": dict.fromkeys(names[2::2], "2")},
        {"name": "scored", "figures": scored},
    ]
    labels = [line.partition("  ")[0] for line in _table(runs).splitlines()]
    assert [label for label in labels if label in scored] == list(scored)


def test_the_score_of_a_variant_stands_for_a_run_that_has_no_other(chain_copy: Path) -> None:
    folder = chain_copy / "runs" / SLUG
    shutil.copytree(folder / "controller", folder / "controller-2")
    shutil.rmtree(folder / "evaluation")
    shutil.rmtree(folder / "dream")
    run(chain_copy, *arguments("evaluate", "--agent", "controller-2"))
    (shown,) = json.loads(run(chain_copy, "compare", str(folder), "--json").stdout)["runs"]
    score = json.loads((folder / "evaluation" / "controller-2" / "score.json").read_text())
    assert shown["figures"]["agent"] == "controller-2"
    assert shown["figures"]["environment steps"] == f"{score['env_steps']:,}"
    assert "is left out" not in run(chain_copy, "report", str(folder), "--env", TINY).stderr
    summary = RunSummary.of(folder)
    assert len(summary.films) == 2
    row = overview([summary]).rows[0]
    assert row[0] == f"{SLUG}, controller-2"
    assert "not yet" not in row
    names = ("vae", "mdnrnn", "controller-2", "evaluation/controller-2", "evaluation/random")
    made = sum(summary.artifacts[name].wall_seconds for name in names)
    waited = summary.collecting_seconds + summary.encoding_seconds
    assert row[-1] == format_duration(made + waited)
    assert all_evaluated((folder,))


def test_a_score_of_another_controller_than_the_run_has_now_is_told(chain_copy: Path) -> None:
    """Trained again but not yet evaluated: the score beside the new figures of C is the old one's."""
    folder = f"runs/{SLUG}"
    told = f"older, {SLUG}: dream of another controller, evaluation/controller of another controller than"
    assert "older" not in run(chain_copy, "compare", folder).stdout
    file = chain_copy / folder / "controller" / manifest.NAME
    body = json.loads(file.read_text())
    del body["sha256"]
    body["recipe"]["settings"]["popsize"] = 99
    file.write_bytes(manifest.sealed(body | {"fingerprint": manifest.sha256_json(body["recipe"])}))
    assert told in " ".join(run(chain_copy, "compare", folder).stdout.split())


def test_the_table_stands_where_the_plot_cannot_be_written(chain_copy: Path) -> None:
    (chain_copy / "file").write_text("")
    ended = outcome(chain_copy, "compare", f"runs/{SLUG}", "--out", "file/compare.png")
    assert ended.returncode != 0
    assert "file" in ended.stderr
    assert "test return" in ended.stdout
