"""The documents name what there is."""

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest

from stages.cli import wm
from stages.options import PRESETS, Sources, preset_names
from wm.envs.registry import NAMED
from wm.settings import COMMANDS

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", sorted(wm.commands))
def test_every_command_has_an_example_and_stands_in_the_readme(name: str) -> None:
    text = wm.commands[name].help or ""
    assert f"Example: wm {name}" in text
    assert f"wm {name}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_setting_has_a_sentence(name: str) -> None:
    for item in dataclasses.fields(COMMANDS[name]):
        assert item.metadata["sentence"].endswith("."), item.name


@pytest.mark.parametrize("preset", preset_names())
def test_presets_name_real_commands_settings_and_environments(preset: str) -> None:
    tables = tomllib.loads((PRESETS / f"{preset}.toml").read_text())
    for command in COMMANDS:
        for env in ("", *NAMED):
            Sources(preset=preset).resolve(command, COMMANDS[command], env)
        for name, value in tables.get(command, {}).items():
            assert not isinstance(value, dict) or name in NAMED


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE"])
def test_documents_exist(name: str) -> None:
    assert (ROOT / name).stat().st_size > 300


def test_the_readmes_measurements_are_those_of_the_benchmarks() -> None:
    from benchmarks.pages import speed

    lines = [json.loads(line) for line in speed.BENCHMARKS.read_text().splitlines()]
    assert speed.measured(lines) in (ROOT / "README.md").read_text()


def test_the_pages_on_learning_are_rendered_from_their_rows() -> None:
    from benchmarks.pages import learning

    rows = json.loads(learning.ROWS.read_text())
    assert learning.PAGE.read_text() == learning.page(rows)
    assert learning.summary(rows) in (ROOT / "README.md").read_text()


def test_pictures_stay_small() -> None:
    assert sum(path.stat().st_size for path in (ROOT / "docs").rglob("*") if path.is_file()) < 2_000_000


def test_the_readmes_scores_are_those_of_the_results_file() -> None:
    from benchmarks.pages import scores

    rows = json.loads((ROOT / "docs" / "results.json").read_text())
    assert scores.table(rows) in (ROOT / "README.md").read_text()
    assert scores.page(rows) == scores.PAGE.read_text()
    for row in rows:
        assert row["episodes"] >= 100, "a quoted score has at least 100 episodes"
        assert row["ci95"] > 0 or row["env"] == "Catch"  # whose ball is caught every time


def test_what_a_preset_returns_is_the_score_of_its_last_round() -> None:
    from benchmarks.pages import scores

    def named(run: str, env: str, mdnrnn: str = "trained") -> str:
        recipe = {"kind": "controller", "settings": {"mdnrnn": mdnrnn, "in_": "real"}}
        return scores.agent_of(Path(run), recipe, scores.rounds_of("laptop", env))

    assert named("runs/LunarLander", "LunarLander") == "vmc-round1"
    assert named("runs/LunarLander.round2", "LunarLander") == "vmc"
    assert named("runs/LunarLander.round2", "LunarLander", "none") == "vmc-none"
    assert named("runs/Pong", "Pong") == "vmc"
    assert named("runs/Pong.round2", "Pong") == "vmc-round2"


def test_the_curve_of_a_second_round_goes_on_from_the_first() -> None:
    from benchmarks.pages import scores

    def row(agent: str, *curve: list[float], env: str = "LunarLander", seed: int = 0) -> scores.Row:
        return {"env": env, "agent": agent, "preset": "laptop", "training_seeds": [seed], "curve": list(curve)}

    first, other = row("vmc-round1", [10, -5.0], [20, 1.0]), row("vmc-round1", [30, 2.0], seed=1)
    ours, without = row("vmc", [1, 3.0]), row("vmc-none", [2, 4.0])
    alone = row("vmc-none", [2, 5.0], env="CarRacing")
    rows = [first, other, ours, without, alone]
    assert scores._whole_curve(rows, ours) == [[10, -5.0], [20, 1.0], [21, 3.0]]
    assert scores._whole_curve(rows, without) == [[20, 1.0], [22, 4.0]]
    assert scores._whole_curve(rows, alone) == [[2, 5.0]]
