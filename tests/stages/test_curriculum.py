import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from stages import cli, console, curriculum
from stages.curriculum import delete_intermediate
from stages.curriculum import estimate as estimating
from stages.curriculum import parallel as side_by_side
from stages.curriculum.outcome import HEADER, Outcome, recorded_outcome, table_of
from stages.curriculum.parallel import Share, run_in_parallel
from stages.curriculum.pipeline import STAGES, Pipeline, pipelines_of, stage_settings
from stages.options import read_sources
from stages.session import Session
from tests.conftest import SLUG, SMALL, TINY, outcome, run, small_config, write_dataset
from wm.artifacts import durable, manifest
from wm.artifacts.runs import load
from wm.errors import BadData, DiskProblem, MissingPackage, Stopped, UsageProblem
from wm.evolution.search_log import read_log
from wm.pipeline.encode import latents_in
from wm.pipeline.plan import Plan
from wm.pipeline.stage import Result
from wm.report.run_summary import RunSummary
from wm.settings import STAGES_OF_AGENT, ControllerSettings, CurriculumSettings
from wm.settings.sources import Sources
from wm.units import format_duration


def score(session: Session, settings: object) -> Result:
    metrics = {
        "mean": 1.0, "ci95": 0.5, "episodes": 10, "preview": True, "env_steps": 1234,
        "random": {"mean": 0.0, "ci95": 0.1, "episodes": 10},
    }  # fmt: skip
    return Result(
        "evaluate", "created", session.run_path / "evaluation" / "controller", session.run_path, "f", metrics, "", 60.0
    )


def train(session: Session, settings: object) -> Result:
    return Result("train-vae", "created", session.run_path / "vae", session.run_path, "f", {}, "", 5.0)


def fail(session: Session, settings: object) -> Result:
    if session.env == "Pong":
        raise BadData("broken")
    return train(session, settings)


def acting(monkeypatch: pytest.MonkeyPatch, **actors: Any) -> None:
    """Stages that do nothing, but for those given."""
    for name, stage in list(STAGES.items()):
        monkeypatch.setitem(STAGES, name, stage._replace(run=actors.get(name.replace("-", "_"), train)))


def play(monkeypatch: pytest.MonkeyPatch, folder: Path, first: object = train, **settings: Any) -> list[Outcome]:
    """A curriculum of Pong and Breakout whose stages do nothing, the first of them as given."""
    acting(monkeypatch, collect=first, evaluate=score)
    monkeypatch.chdir(folder)
    return curriculum.curriculum(Session(""), CurriculumSettings(envs="Pong,Breakout", **settings), read_sources())


def test_a_dream_that_fails_does_not_cost_the_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acting(monkeypatch, dream=fail, evaluate=score)
    monkeypatch.chdir(tmp_path)
    (played,) = curriculum.curriculum(Session(""), CurriculumSettings(envs="Pong"), read_sources())
    assert str(played.failure) == "broken"
    assert "evaluate" in [result.stage for result in played.results]
    assert re.search(r"Pong +0\.0 ± 0\.1 +1\.0 ± 0\.5", table_of([played]))


def test_the_next_environment_runs_after_one_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = play(monkeypatch, tmp_path, fail)
    assert [outcome.failure is None for outcome in outcomes] == [False, True]
    table = table_of(outcomes)
    assert re.search(r"Pong +- +failed +- +- ", table)
    assert re.search(r"Breakout +0\.0 ± 0\.1 +1\.0 ± 0\.5 +10 +1,234 ", table)
    assert "Pong: failed: broken" in table
    record = json.loads((tmp_path / "runs" / "Pong" / "curriculum.json").read_text())
    assert record["outcome"] == "failed: broken"


def test_the_table_has_every_round_by_the_name_of_the_environment_that_was_given() -> None:
    (pipeline,) = pipelines_of(Session(""), CurriculumSettings(envs=TINY, rounds=2), read_sources())
    results = [score(step.session, step.settings) for step in pipeline.steps if step.stage == "evaluate"]
    assert [row[0] for row in Outcome(pipeline, results).rows()] == [TINY, f"{TINY}, round 2"]


def test_the_table_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        ["LunarLander", "-191.3 ± 25.8", "-168.8 ± 255.7", "100", "12,463,432", "24 min 50 s"],
        ["Pong, round 20", "-20.4 ± 0.2", "9.3 ± 1.5", "100", "2,463,432", "1 h 14 min"],
    ]
    monkeypatch.setenv("COLUMNS", "80")
    assert len(console.table(HEADER, rows).splitlines()) == 4


def test_fail_fast_stops_at_the_first_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [outcome.env for outcome in play(monkeypatch, tmp_path, fail, fail_fast=True)] == ["Pong"]


def test_a_full_disk_stops_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(session: Session, settings: object) -> Result:
        raise DiskProblem("full")

    with pytest.raises(DiskProblem):
        play(monkeypatch, tmp_path, full)


def test_the_budget_holds_for_all_environments_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = {}

    def see(session: Session, settings: object) -> Result:
        left[session.env] = session.disk_limit
        return train(session, settings)

    (tmp_path / "data" / "Pong.zarr").mkdir(parents=True)
    (tmp_path / "data" / "Pong.zarr" / "part").write_bytes(bytes(300_000))
    acting(monkeypatch, collect=see)
    monkeypatch.chdir(tmp_path)
    session = Session("", disk_limit=1_000_000)
    curriculum.curriculum(session, CurriculumSettings(envs="Pong,Breakout"), read_sources())
    assert left["Pong"] == 1_000_000  # its own episodes are counted where they are written
    assert left["Breakout"] is not None
    assert 600_000 < left["Breakout"] <= 700_000


def test_an_outcome_distinguishes_a_threshold_reached_from_a_budget_spent() -> None:
    pipeline = pipelines_of(Session(""), CurriculumSettings(envs="Pong"), read_sources("quick"))[0]

    def outcome(best: float, ended: str) -> str:
        metrics = {"validation_return": best, "ended": ended}
        return str(
            Outcome(pipeline, [Result("train-controller", "created", Path("r/c"), Path("r"), "f", metrics, "", 1.0)])
        )

    assert outcome(-15.5, "target") == "passed: validation -15.5, threshold -16"
    assert outcome(-19.0, "steps") == "budget spent (steps): validation -19.0, threshold -16"


def test_a_best_policy_that_was_replaced_does_not_pass(tmp_path: Path) -> None:
    text = "[curriculum]\nrounds = 3\nretrain_round = 3\n[train-controller]\ntarget_return = 5\n"
    (tmp_path / "c.toml").write_text(text)
    settings, sources = CurriculumSettings(envs="Pong", rounds=3), read_sources(config=tmp_path / "c.toml")
    (pipeline,) = pipelines_of(Session(""), settings, sources)
    validated = ({"validation_return": best, "ended": "steps"} for best in (1.0, 9.0, 2.0))
    results = [Result("train-controller", "created", Path("c"), Path("r"), "f", each, "", 1.0) for each in validated]
    assert str(Outcome(pipeline, results)) == "budget spent (steps): validation 2.0, threshold 5"


@pytest.mark.parametrize(
    ("words", "agent", "expected"),
    [
        (("rounds=2", "retrain_round=2", "train-controller.hidden=4"), "vmc", "C has 4 hidden units; with --algo cma"),
        (("rounds=2", "train-controller.imitate=true"), "vmc", "the curriculum says what a round continues from"),
        (("rounds=2", "train-mdnrnn.source_vae=true"), "vmc", "the curriculum says what a round continues from"),
        (("retrain_round=2",), "dreamer", "--set retrain_round is for V, M and C"),
        (("retrain_round=2",), "vmc", "rounds are 1 to 1; give --rounds 2 or more, or leave it out"),
    ],
)
def test_what_a_round_that_trains_anew_cannot_do_is_told(words: tuple[str, ...], agent: str, expected: str) -> None:
    sources = read_sources(assignments=words, command="curriculum")
    with pytest.raises(UsageProblem, match=re.escape(expected)):
        pipelines_of(Session(""), CurriculumSettings(envs=TINY, agent=agent), sources)


def test_the_first_round_may_continue_another_run() -> None:
    sources = read_sources(assignments=("rounds=2", "train-mdnrnn.init_from=runs/other"), command="curriculum")
    steps = pipelines_of(Session(""), CurriculumSettings(envs=TINY), sources)[0].steps
    memories: list[Any] = [step.settings for step in steps if step.stage == "train-mdnrnn"]
    assert [m.init_from for m in memories] == ["runs/other", f"runs/{SLUG}"]


@pytest.mark.parametrize(
    ("given", "later"), [("restarts=2", (1, "")), ("whiten_at=1", (1, "")), ("whiten_at=0", (1, "0"))]
)
def test_an_evolved_policy_that_is_imitated_has_one_search_whitened_at_its_start_if_ever(
    given: str, later: tuple[int, str]
) -> None:
    words = ("rounds=2", "retrain_round=2", f"train-controller.{given}")
    sources = read_sources(assignments=words, command="curriculum")
    steps = pipelines_of(Session(""), CurriculumSettings(envs=TINY), sources)[0].steps
    searches: list[Any] = [step.settings for step in steps if step.stage == "train-controller"]
    assert (searches[1].restarts, searches[1].whiten_at, searches[1].imitate) == (*later, True)


def test_a_round_beyond_those_of_a_file_is_told_and_that_of_a_preset_left_out(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[curriculum]\nrounds = 2\nretrain_round = 3\n")
    with pytest.raises(UsageProblem, match="retrain_round is 3, and Pong's rounds are 1 to 2; expected a later one"):
        pipelines_of(Session(""), CurriculumSettings(envs="Pong"), read_sources(config=tmp_path / "c.toml"))
    (pipeline,) = pipelines_of(Session(""), CurriculumSettings(envs="Pong", rounds=3), read_sources("dream"))
    assert [step.round for step in pipeline.steps if step.stage == "train-vae"] == [1]


def test_named_curricula_and_lists() -> None:
    assert CurriculumSettings().names == ["Pong", "LunarLander", "Breakout", "CarRacing"]
    assert CurriculumSettings(envs="classic").names == ["Pong", "Breakout", "CartPole", "Acrobot"]
    assert CurriculumSettings(envs="Acrobot, Pong,Acrobot").names == ["Acrobot", "Pong"]


def test_the_limits_of_a_search_can_be_given() -> None:
    settings = CurriculumSettings(envs="Pong,Acrobot", max_generations=3, max_hours=0.5, max_env_steps=1000)
    pipelines = pipelines_of(Session(""), settings, read_sources("quick"))
    searches = [step.settings for pipeline in pipelines for step in pipeline.steps if step.stage == "train-controller"]
    limits = [(s.algo, s.max_generations, s.max_hours, s.max_env_steps) for s in searches]  # type: ignore[attr-defined]
    assert limits == [("ppo", 60, 0.5, 1000), ("cma", 3, 0.5, 1000)]  # three iterations of PPO have more steps


@pytest.mark.parametrize(
    ("preset", "env", "expected"),
    [
        ("quick", "Pong", (3 * 16 * 128, 1_000_000)),
        ("laptop", "CarRacing", (3 * 16 * 128 * 4, 1_000_000)),  # an action lasts four steps
        ("dream", "Pong", (0, 3 * 512 * 50)),
    ],
)
def test_a_generation_of_ppo_is_an_iteration(preset: str, env: str, expected: tuple[int, int]) -> None:
    settings = stage_settings(CurriculumSettings(max_generations=3), read_sources(preset), env)
    search = settings["train-controller"]
    assert isinstance(search, ControllerSettings)
    assert (search.max_env_steps, search.max_dream_steps) == expected


def test_every_environment_is_checked_before_the_first_one_starts() -> None:
    with pytest.raises(UsageProblem, match="did you mean Breakout"):
        pipelines_of(Session(""), CurriculumSettings(envs="Pong, Braekout"), read_sources())


def test_the_vae_trains_on_the_episodes_that_were_collected() -> None:
    settings = stage_settings(CurriculumSettings(), read_sources("quick"), "CarRacing")
    assert settings["train-vae"].episodes == settings["collect"].episodes  # type: ignore[attr-defined]


def test_a_later_round_collects_with_the_controller_and_continues_from_the_round_before() -> None:
    steps = pipelines_of(Session(""), CurriculumSettings(envs="Pong", rounds=3), read_sources())[0].steps
    assert [step.stage for step in steps].count("train-vae") == 1
    by_round = {(step.round, step.stage): step for step in steps}
    assert str(by_round[2, "collect"]) == "Pong collect, round 2"
    assert by_round[2, "collect"].settings.policy == "controller"  # type: ignore[attr-defined]
    assert str(by_round[2, "collect"].session.data_path) == "data/Pong.round2.zarr"
    assert str(by_round[2, "collect"].session.run_path) == "runs/Pong"
    assert by_round[3, "train-mdnrnn"].settings.init_from == "runs/Pong.round2"  # type: ignore[attr-defined]
    assert [path.name for path in by_round[3, "train-mdnrnn"].session.data_paths] == [
        "Pong.zarr", "Pong.round2.zarr", "Pong.round3.zarr",
    ]  # fmt: skip
    assert by_round[3, "dream"].session.data_path.name == "Pong.zarr"  # pictured next to V's episodes
    assert by_round[1, "train-controller"].settings.init_from is None  # type: ignore[attr-defined]


def test_rounds_of_a_policy_gradient_collect_with_the_latest_policy_and_the_last_one_is_evaluated(
    tmp_path: Path,
) -> None:
    (tmp_path / "c.toml").write_text(
        '[train-controller]\nalgo = "ppo"\nin = "dream"\n'
        "[collect.later]\nepisodes = 4\nrandom_share = 0.2\n[collect.Pong.later]\nsize = 32\n"
    )
    sources = read_sources(config=tmp_path / "c.toml")
    steps = pipelines_of(Session(""), CurriculumSettings(envs="Pong", rounds=3), sources)[0].steps
    assert [(step.round, step.stage) for step in steps] == [
        (1, "collect"), (1, "train-vae"), (1, "train-mdnrnn"), (1, "train-controller"),
        (2, "collect"), (2, "train-mdnrnn"), (2, "train-controller"),
        (3, "collect"), (3, "train-mdnrnn"), (3, "train-controller"), (3, "dream"), (3, "evaluate"),
    ]  # fmt: skip
    collecting = [step.settings for step in steps if step.stage == "collect"]
    assert [(s.policy, s.episodes, s.size, s.random_share) for s in collecting] == [  # type: ignore[attr-defined]
        ("auto", 50, 64, 0.05), ("latest", 4, 32, 0.2), ("latest", 4, 32, 0.2),
    ]  # fmt: skip


def test_a_round_trains_all_three_anew_on_the_episodes_of_all_rounds(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[curriculum]\nrounds = 4\nretrain_round = 3\n[train-controller]\nalgo = "ppo"\nin = "dream"\n'
        "[train-mdnrnn]\nsteps = 800\n[train-mdnrnn.later]\nsteps = 70\n[collect.later]\nepisodes = 7\n"
    )
    sources = read_sources(config=tmp_path / "c.toml")
    steps = pipelines_of(Session(""), CurriculumSettings(envs="Pong"), sources)[0].steps
    of_v = [step for step in steps if step.stage == "train-vae"]
    assert [step.round for step in of_v] == [1, 3]
    assert of_v[1].session.run_path == Path("runs/Pong.round3")
    assert [path.stem for path in of_v[1].session.data_paths] == ["Pong", "Pong.round2", "Pong.round3"]
    assert of_v[0].settings == of_v[1].settings
    memories: list[Any] = [step.settings for step in steps if step.stage == "train-mdnrnn"]
    assert [(m.steps, m.init_from, m.source_vae) for m in memories] == [
        (800, None, False), (70, "runs/Pong", True), (800, None, False), (70, "runs/Pong.round3", True),
    ]  # fmt: skip
    searches: list[Any] = [step.settings for step in steps if step.stage == "train-controller"]
    assert [(c.imitate, c.init_from) for c in searches] == [
        (False, None), (False, "runs/Pong"), (True, "runs/Pong.round2"), (False, "runs/Pong.round3"),
    ]  # fmt: skip
    collecting: list[Any] = [step.settings for step in steps if step.stage == "collect"]
    assert [c.episodes for c in collecting] == [50, 7, 7, 7]


@pytest.mark.parametrize(("number", "accepted"), [(0, True), (1, False), (2, True), (3, True), (4, False)])
def test_the_round_that_trains_anew_is_a_later_one(number: int, accepted: bool) -> None:
    settings = CurriculumSettings(envs=TINY, rounds=3)
    sources = read_sources(assignments=[f"retrain_round={number}"], command="curriculum")
    if accepted:
        steps = pipelines_of(Session(""), settings, sources)[0].steps
        assert [step.round for step in steps if step.stage == "train-vae"] == ([1, number] if number else [1])
    else:
        with pytest.raises(UsageProblem, match=f"retrain_round is {number}, and {TINY}'s rounds are 1 to 3; expected"):
            pipelines_of(Session(""), settings, sources)


@pytest.mark.parametrize(("name", "later"), [("whiten_at", ""), ("restarts", 1)])
def test_only_the_first_round_restarts(tmp_path: Path, name: str, later: str | int) -> None:
    (tmp_path / "c.toml").write_text(f"[train-controller]\n{name} = 5\n")
    sources = read_sources(config=tmp_path / "c.toml")
    steps = pipelines_of(Session(""), CurriculumSettings(envs="Pong", rounds=2), sources)[0].steps
    first = "5" if name == "whiten_at" else 5
    assert [getattr(step.settings, name) for step in steps if step.stage == "train-controller"] == [first, later]


def test_an_environment_has_the_rounds_of_its_preset_unless_rounds_are_given(tmp_path: Path) -> None:
    (tmp_path / "rounds.toml").write_text(
        "[curriculum.Pong]\nrounds = 3\n[collect.Pong.later]\nepisodes = 7\n[train-mdnrnn.Pong.later]\nsteps = 8\n"
    )
    sources = read_sources(config=tmp_path / "rounds.toml")

    def pipelines(rounds: int) -> list[Pipeline]:
        return pipelines_of(Session(""), CurriculumSettings(envs="Pong,Breakout", rounds=rounds), sources)

    assert [len(pipeline.runs) for pipeline in pipelines(0)] == [3, 1]
    assert [len(pipeline.runs) for pipeline in pipelines(2)] == [2, 2]
    assert [len(pipeline.runs) for pipeline in pipelines(1)] == [1, 1]
    by_round = {(step.round, step.stage): step.settings for step in pipelines(0)[0].steps}
    collected = [by_round[number, "collect"] for number in (1, 2, 3)]
    assert [(one.episodes, one.policy) for one in collected] == [(50, "auto"), (7, "controller"), (7, "controller")]  # type: ignore[attr-defined]
    assert [by_round[number, "train-mdnrnn"].steps for number in (1, 3)] == [4000, 8]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), {"CartPole": 3, "Pong": 2}), (("--rounds", "1"), {"CartPole": 1, "Pong": 1}), (("--rounds", "2"), {})],
)
def test_rounds_of_an_environment_hold_unless_a_flag_gives_them_for_all(
    options: tuple[str, ...], expected: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rounds.toml").write_text("[curriculum]\nrounds = 2\n[curriculum.CartPole]\nrounds = 3\n")
    planned: dict[str, int] = {}

    def plan(session: Session, settings: CurriculumSettings, sources: Sources, *_: Any) -> None:
        planned.update({each.env: len(each.runs) for each in pipelines_of(session, settings, sources)})

    monkeypatch.setattr(curriculum, "run_command", plan)
    words = ("curriculum", "--envs", "CartPole,Pong", "--config", str(tmp_path / "rounds.toml"), *options)
    assert cli.run(list(words)) == 0
    assert planned == (expected or {"CartPole": 2, "Pong": 2})


@pytest.mark.slow
def test_two_rounds_run_through_and_are_up_to_date_afterwards(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    words = ("curriculum", "--envs", TINY, "--rounds", "2", "--config", config)
    done = run(tmp_path, *words)
    assert f"{TINY}, round 2" in done.stdout
    assert "runs/" in done.stderr
    inputs = json.loads((tmp_path / "runs" / f"{SLUG}.round2" / "mdnrnn" / "manifest.json").read_text())["recipe"][
        "inputs"
    ]
    assert {"latents", f"latents-{SLUG}.round2", "vae", "init_from"} == set(inputs)
    log = read_log(tmp_path / "runs" / f"{SLUG}.round2" / "controller")
    assert log[0]["generation"] == 0  # the controller it continues from is validated first
    assert len(log[0]["validation"]) == 3
    record = tmp_path / "runs" / f"{SLUG}.round2" / "curriculum.json"
    usage = json.loads(record.read_text())["usage"]
    assert usage[f"{TINY} train-vae"]["memory"] > 100_000_000
    again = run(tmp_path, *words)
    assert again.stderr.count(": up to date: ") == 11
    for name in (SLUG, f"{SLUG}.round2"):
        summary = RunSummary.of(tmp_path / "runs" / name)
        names = ("vae", "mdnrnn", "controller", "dream", "evaluation/controller", "evaluation/random")
        artifacts = sum(summary.artifacts[part].wall_seconds for part in names)
        artifacts += sum(load(path, "latents", "").wall_seconds for path in latents_in(tmp_path / "runs" / name))
        assert summary.collecting_seconds > 0
        before = summary.artifacts["controller"].metrics.get("seconds_before", 0.0)
        assert summary.wall_seconds("controller") == pytest.approx(artifacts + before + summary.collecting_seconds)
        shown = format_duration(summary.wall_seconds("controller"))
        assert shown in done.stdout  # the console's table
        assert f"| {shown} |" in (tmp_path / "runs" / "report.md").read_text()
    assert json.loads(record.read_text())["usage"] == usage
    run(tmp_path, *words, "--set", "train-vae.learning_rate=0.002")  # the second round takes the new V
    first, second = (json.loads((tmp_path / "runs" / name / "vae" / "manifest.json").read_text())
                     for name in (SLUG, f"{SLUG}.round2"))  # fmt: skip
    assert first["recipe"]["settings"]["learning_rate"] == 0.002
    assert first == second


def test_what_is_not_kept_goes_in_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (pipeline,) = pipelines_of(Session(""), CurriculumSettings(envs=TINY, rounds=2), read_sources())
    first, second = pipeline.runs
    others = [run / name for run in pipeline.runs for name in ("vae", "mdnrnn")]
    for folder in (first / "latents", second / "latents", second / f"latents-{SLUG}.round2", *others):
        folder.mkdir(parents=True)
    delete_intermediate(pipeline, "data")
    assert sorted(path for run in pipeline.runs for path in run.iterdir()) == sorted(others)


@pytest.mark.slow
def test_removed_episodes_are_not_collected_again(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    words = ("curriculum", "--envs", TINY, "--config", config)
    first = run(tmp_path, *words, "--keep", "artifacts")
    assert "--keep artifacts freed" in first.stderr
    assert not list((tmp_path / "data").glob("*.zarr"))
    assert not (tmp_path / "runs" / SLUG / "latents").exists()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / SLUG).rglob("weights.safetensors")}
    assert len(before) == 3
    again = run(tmp_path, *words, "--keep", "artifacts")
    assert "up to date; its episodes or latents were removed" in again.stderr
    assert again.stdout == first.stdout
    changed = run(tmp_path, *words, "--max-generations", "2", "--keep", "data")
    assert "collect: created" in changed.stderr  # the same episodes again, so that V and M stay
    assert "train-vae: up to date" in changed.stderr
    assert "max_generations 3 -> 2" in changed.stderr
    assert (tmp_path / "data" / f"{SLUG}.zarr").exists()
    assert not (tmp_path / "runs" / SLUG / "latents").exists()


@pytest.mark.slow
def test_environments_in_parallel_end_as_they_do_alone(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    envs = f"{TINY},{TINY.replace('Tiny', 'Fragile')}"
    words = ("curriculum", "--envs", envs, "--config", config)
    parallel = run(tmp_path, *words, "--jobs", "2", TINY_BREAK="raise:none:")
    assert re.search(rf"^{TINY} \| \[1/6\] {TINY} collect: created", parallel.stderr, re.M)
    assert parallel.stdout.count("fewer than 100 episodes are a preview") == 1
    assert re.search(rf"^{TINY} \| film ", parallel.stderr, re.M)  # while the other one still trains
    assert (tmp_path / "runs" / "report.html").exists()
    typed = shlex.join(["wm", *words, "--jobs", "2"])  # not what the process of one environment was given
    vae = json.loads((tmp_path / "runs" / SLUG / "vae" / "manifest.json").read_text())
    assert vae["provenance"]["command"] == typed
    alone = run(tmp_path, *words, TINY_BREAK="raise:none:")
    assert alone.stderr.count(": up to date: ") == 12


def test_every_stage_is_estimated_before_the_first_runs_and_too_much_is_refused(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    words = ("curriculum", "--envs", TINY, "--config", config, "--rounds", "2")
    estimate = json.loads(run(tmp_path, *words, "--dry-run", "--json").stdout)
    vmc = STAGES_OF_AGENT["vmc"]
    stages = [plan["stage"] for plan in estimate["environments"][TINY]]
    assert stages == [*vmc, *(name for name in vmc if name != "train-vae")]
    assert all(plan["memory_bytes"] > 0 and plan["seconds"][1] > 0 for plan in estimate["environments"][TINY])
    assert estimate["disk_bytes"] > 10_000
    words = ("curriculum", "--envs", TINY, "--config", config, "--disk-budget", "20kB")
    refused = outcome(tmp_path, *words)
    assert refused.returncode == 74
    assert "--disk-budget leaves 20.0 kB; free some space" in refused.stderr
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "runs").exists()


def test_a_signal_ends_an_estimate_and_is_no_failure_of_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(estimating, "_plans", stop)
    with pytest.raises(Stopped):
        estimating.estimate_curriculum(Session(""), CurriculumSettings(envs="Pong"), read_sources())


def test_a_missing_package_is_a_warning_before_the_first_stage_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def plans(pipeline: Pipeline) -> list[Plan]:
        if pipeline.env == "Pong":
            raise MissingPackage("Pong needs a package that is not installed; run `pip install ale-py`.")
        return [Plan("collect", Path("d"), "", 10, 10, (1, 1))]

    monkeypatch.setattr(estimating, "_plans", plans)
    estimate = estimating.estimate_curriculum(Session(""), CurriculumSettings(envs="Pong,CartPole"), read_sources())
    assert estimate.warnings == [
        "Pong will fail: Pong needs a package that is not installed; run `pip install ale-py`."
    ]
    estimate.require_disk()


def test_the_longest_environment_of_several_at_a_time_starts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start(words: object, share: Share) -> subprocess.Popen[str]:
        started.append(share.env)
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"], stderr=subprocess.PIPE, text=True)

    monkeypatch.setattr(side_by_side, "_start", start)
    pipelines = [Pipeline(env, []) for env in ("Pong", "CartPole", "Catch")]
    outcomes = run_in_parallel(Session("", workers=2), 1, False, (), pipelines, ["Catch", "Pong", "CartPole"])
    assert started == ["Catch", "Pong", "CartPole"]
    assert [outcome.env for outcome in outcomes] == ["Pong", "CartPole", "Catch"]


def test_an_environment_whose_process_a_signal_ends_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system ends one where memory is used up; what it last said is no reason."""

    def start(words: object, share: Share) -> subprocess.Popen[str]:
        program = "import os, sys; print('train-vae ...', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
        return subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)

    monkeypatch.setattr(side_by_side, "_start", start)
    (outcome,) = run_in_parallel(Session(""), 1, False, (), [Pipeline("Catch", [])], [])
    assert str(outcome) == (
        "failed: its process ended with signal SIGKILL, as where memory is used up; the same command resumes, with "
        "fewer --jobs if memory was short."
    )
    assert outcome.failure is not None
    assert outcome.failure.exit_code == 137


def test_the_report_has_the_other_environments_where_one_has_nothing_finished(
    chain_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (chain_copy / "runs" / "Pong" / "vae.partial").mkdir(parents=True)
    monkeypatch.chdir(chain_copy)
    pipelines = pipelines_of(Session(""), CurriculumSettings(envs=f"Pong,{TINY}"), read_sources())
    assert curriculum._report(list(map(Outcome, pipelines))) == (Path("runs/report.html"), Path("runs/report.md"))
    assert "no report" not in capsys.readouterr().err


def test_each_of_two_environments_has_half_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []

    def plans(pipeline: Pipeline) -> list[Plan]:
        shares.append((pipeline.steps[0].session.processes, torch.get_num_threads()))
        return [Plan("collect", Path("d"), "", 10, 10, (1, 1))]

    monkeypatch.setattr(estimating, "_plans", plans)
    threads = torch.get_num_threads()
    estimating.estimate_curriculum(
        Session("", workers=6), CurriculumSettings(envs="Pong,CartPole", jobs=5), read_sources()
    )
    assert shares == [(3, 3), (3, 3)]
    assert torch.get_num_threads() == threads


def test_an_environment_that_breaks_while_it_is_measured_leaves_the_others(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    other = TINY.replace("Tiny", "Fragile")
    words = ("curriculum", "--envs", f"{other},{TINY}", "--config", config, "--dry-run", "--json")
    estimate = json.loads(run(tmp_path, *words, TINY_BREAK="raise:any:").stdout)
    assert len(estimate["environments"][TINY]) == 6
    assert re.search(f"{other} will fail: .*the environment broke", estimate["warnings"][0])


def test_a_dataset_with_more_episodes_than_the_curriculum_collects_is_not_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = pipelines_of(Session(""), CurriculumSettings(envs=TINY), read_sources())[0]
    step = pipeline.steps[0]
    data = write_dataset(tmp_path / "mine.zarr", 4)
    for episodes, stays in ((3, True), (4, False)):
        settings = replace(step.settings, episodes=episodes)  # type: ignore[call-arg]
        own = replace(step, session=replace(step.session, data=(data,), run=tmp_path / "run"), settings=settings)
        curriculum.delete_intermediate(Pipeline(TINY, [own]), "artifacts")
        assert data.exists() is stays
    assert "stays; it has 4 episodes, this curriculum collects 3" in capsys.readouterr().err


def test_the_settings_of_a_stage_can_be_set(tmp_path: Path) -> None:
    sources = read_sources(assignments=("train-vae.latent=16", "rounds=2"), command="curriculum")
    settings = sources.resolve("curriculum", CurriculumSettings, "")[0]
    steps = pipelines_of(Session(""), settings, sources)[0].steps
    assert [step.settings.latent for step in steps if step.stage == "train-vae"] == [16]  # type: ignore[attr-defined]
    assert settings.rounds == 2


def test_a_dry_run_shows_the_settings_of_its_stages(tmp_path: Path) -> None:
    words = ("curriculum", "--envs", TINY, "--config", small_config(tmp_path), "--dry-run")
    assert "frames, 4 latents" in run(tmp_path, *words).stdout
    assert "frames, 17 latents" in run(tmp_path, *words, "--set", "train-vae.latent=17").stdout
    config = json.loads(run(tmp_path, *words, "--set", "train-vae.latent=16", "--print-config", "--json").stdout)
    assert config["train-vae"]["latent"] == {"value": 16, "source": "--set"}


def test_a_process_of_jobs_imports_nothing_that_lies_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    process = side_by_side._start(["--version"], Share(os.getpid(), "Catch", 1, None))
    assert (process.communicate()[1], process.returncode) == ("", 0)


def test_a_process_of_jobs_runs_its_share_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def collect(session: Session, settings: object) -> Result:
        seen.append((session.env, session.workers, session.disk_limit))
        return train(session, settings)

    acting(monkeypatch, collect=collect, evaluate=score)
    monkeypatch.chdir(tmp_path)
    share = {"leader": os.getpid(), "env": "Breakout", "workers": 3, "disk_limit": 10**9}
    monkeypatch.setenv("WM_LEADER", json.dumps(share))
    assert cli.run(["curriculum", "--envs", "Pong,Breakout", "--jobs", "2", "--json"]) == 0
    assert [(env, workers) for env, workers, _ in seen] == [("Breakout", 3)]
    assert 0 < seen[0][2] <= 10**9
    assert list(json.loads(capsys.readouterr().out)["environments"]) == ["Breakout"]


def test_stages_after_a_change_are_not_estimated_as_up_to_date(chain: Path, tmp_path: Path) -> None:
    config = small_config(tmp_path, SMALL)

    def plans(*assignments: str) -> list[bool]:
        output = run(
            chain, "curriculum", "--envs", TINY, "--config", config, "--dry-run", "--json", *assignments
        ).stdout
        return [plan["what"].startswith("up to date") for plan in json.loads(output)["environments"][TINY]]

    assert plans() == [True] * 6
    assert plans("--max-generations", "7") == [True, True, True, False, False, False]


def test_the_recorded_outcome_is_that_of_the_artifacts_and_a_changed_record_is_named(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    (pipeline,) = pipelines_of(Session(""), CurriculumSettings(envs=TINY), read_sources("quick"))
    results = []
    for step in pipeline.steps:
        folder = step.outputs[-1 if step.stage == "train-mdnrnn" else 0]
        body = {"fingerprint": "f", "metrics": {}}
        if step.stage != "collect":
            body = json.loads((folder / "manifest.json").read_text())
        results.append(
            Result(step.stage, "created", folder, folder.parent, body["fingerprint"], body["metrics"], "", 1.0)
        )
    Outcome(pipeline, results).record()
    recorded = recorded_outcome(pipeline)
    assert recorded is not None
    evaluation = tmp_path / "runs" / SLUG / "evaluation" / "controller"
    score = json.loads((evaluation / "manifest.json").read_text())["metrics"]
    assert [result.metrics for result in recorded.results if result.stage == "evaluate"] == [score]

    file = tmp_path / "runs" / SLUG / "curriculum.json"
    record = json.loads(file.read_text())
    record.pop("sha256")
    record["results"][-1]["metrics"]["mean"] = 934.8
    durable.write_json(file, record)
    with pytest.raises(BadData, match=r"curriculum\.json has no checksum; remove it to run every stage again"):
        recorded_outcome(pipeline)
    forged = manifest.sealed(record)
    file.write_bytes(forged.replace(b"934.8", b"934.9"))
    with pytest.raises(BadData, match="does not match its own checksum"):
        recorded_outcome(pipeline)
    with pytest.raises(BadData, match="does not match its own checksum"):  # no episodes are there
        curriculum.curriculum(Session(""), CurriculumSettings(envs=TINY), read_sources("quick"))
    file.write_bytes(forged)
    again = recorded_outcome(pipeline)
    assert again is not None
    assert again.rows() == recorded.rows()
    elsewhere = shutil.copytree(tmp_path / "runs" / SLUG / "vae", tmp_path / "other" / "vae")
    (place,) = [number for number, result in enumerate(record["results"]) if result["stage"] == "train-vae"]
    moved = [values | {"artifact": str(elsewhere)} if number == place else values
             for number, values in enumerate(record["results"])]  # fmt: skip
    file.write_bytes(manifest.sealed(record | {"results": moved}))
    assert recorded_outcome(pipeline) is None
    file.write_bytes(forged)
    scores = evaluation / "score.json"
    scores.write_bytes(scores.read_bytes().replace(b"1", b"2"))
    with pytest.raises(BadData, match=r"score\.json does not match its checksum"):
        recorded_outcome(pipeline)
    Outcome(pipeline, results).record()  # what was run replaces a damaged record
