import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from stages import curriculum
from stages.curriculum import estimate as foresight
from stages.curriculum.outcome import Verdict, closing
from stages.curriculum.pipeline import STAGES, VMC, Pipeline, env_names, pipelines_of, stage_settings
from stages.options import Sources
from stages.session import Session
from stages.stage import Plan, Result
from tests.conftest import SLUG, SMALL, TINY, outcome, run, small_config, write_dataset
from wm.errors import BadData, DiskProblem, MissingPackage, UsageProblem
from wm.evolution.evolve import logged
from wm.settings import ControllerSettings, CurriculumSettings


def score(session: Session, settings: object) -> Result:
    metrics = {
        "mean": 1.0, "ci95": 0.5, "episodes": 10, "preview": True, "env_steps": 1234,
        "random": {"mean": 0.0, "ci95": 0.1, "episodes": 10},
    }  # fmt: skip
    return Result("evaluate", "created", session.run_path, "f", metrics, "", 60.0)


def train(session: Session, settings: object) -> Result:
    return Result("train-vae", "created", session.run_path, "f", {}, "", 5.0)


def fail(session: Session, settings: object) -> Result:
    if session.env == "Pong":
        raise BadData("broken")
    return train(session, settings)


def acting(monkeypatch: pytest.MonkeyPatch, **actors: Any) -> None:
    """Stages that do nothing, but for those given."""
    for name, stage in list(STAGES.items()):
        monkeypatch.setitem(STAGES, name, stage._replace(run=actors.get(name.replace("-", "_"), train)))


def play(monkeypatch: pytest.MonkeyPatch, folder: Path, first: object = train, **settings: Any) -> list[Verdict]:
    """A curriculum of Pong and Breakout whose stages do nothing, the first of them as given."""
    acting(monkeypatch, collect=first, evaluate=score)
    monkeypatch.chdir(folder)
    return curriculum.curriculum(Session(""), CurriculumSettings(envs="Pong,Breakout", **settings), Sources())


def test_one_environments_failure_does_not_take_the_others_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = play(monkeypatch, tmp_path, fail)
    assert [verdict.failure is None for verdict in verdicts] == [False, True]
    table = closing(verdicts)
    assert re.search(r"Pong +- +- +- +failed", table)
    assert re.search(r"Breakout +0\.0 ± 0\.1 +1\.0 ± 0\.5 +preview, n=10 .* 1,234", table)
    assert "Pong: failed: broken" in table
    kept = json.loads((tmp_path / "runs" / "Pong" / "curriculum.json").read_text())
    assert kept["verdict"] == "failed: broken"


def test_strict_stops_at_the_first_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [verdict.env for verdict in play(monkeypatch, tmp_path, fail, strict=True)] == ["Pong"]


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
    curriculum.curriculum(session, CurriculumSettings(envs="Pong,Breakout"), Sources())
    assert left["Pong"] == 1_000_000  # its own episodes are counted where they are written
    assert left["Breakout"] is not None
    assert 600_000 < left["Breakout"] <= 700_000


def test_a_verdict_tells_a_threshold_reached_from_a_budget_spent() -> None:
    chain = pipelines_of(Session(""), CurriculumSettings(envs="Pong"), Sources(preset="quick"))[0]

    def verdict(best: float, ended: str) -> str:
        found = {"validation_return": best, "ended": ended}
        return str(Verdict(chain, [Result("train-controller", "created", Path("c"), "f", found, "", 1.0)]))

    assert verdict(-16.5, "target") == "passed: validation -16.5, threshold -18"
    assert verdict(-19.0, "generations") == "budget spent (generations): validation -19.0, threshold -18"


def test_named_curricula_and_lists() -> None:
    assert env_names(CurriculumSettings()) == ["Pong", "LunarLander", "Breakout", "CarRacing"]
    assert env_names(CurriculumSettings(name="classic")) == ["Pong", "Breakout", "CartPole", "Acrobot"]
    assert env_names(CurriculumSettings(envs="Acrobot, Pong,Acrobot")) == ["Acrobot", "Pong"]


def test_the_budget_of_a_search_can_be_given() -> None:
    settings = CurriculumSettings(envs="Pong", max_generations=3, max_hours=0.5, max_steps=1000)
    steps = {
        step.stage: step.settings for step in pipelines_of(Session(""), settings, Sources(preset="quick"))[0].steps
    }
    search = steps["train-controller"]
    assert isinstance(search, ControllerSettings)
    assert (search.max_generations, search.max_hours, search.max_env_steps) == (3, 0.5, 1000)
    assert search.popsize == 16


def test_every_environment_is_checked_before_the_first_one_starts() -> None:
    with pytest.raises(UsageProblem, match="did you mean Breakout"):
        env_names(CurriculumSettings(envs="Pong, Braekout"))


def test_the_vae_trains_on_the_episodes_that_were_collected() -> None:
    chosen = stage_settings(Sources(preset="quick"), "CarRacing")
    assert chosen["train-vae"].episodes == chosen["collect"].episodes  # type: ignore[attr-defined]


def test_a_later_round_collects_with_the_controller_before_it_and_goes_on_from_there() -> None:
    steps = pipelines_of(Session(""), CurriculumSettings(envs="Pong", rounds=3), Sources(preset="quick"))[0].steps
    assert [step.stage for step in steps].count("train-vae") == 1
    told = {(step.round, step.stage): step for step in steps}
    assert str(told[2, "collect"]) == "Pong collect, round 2"
    assert told[2, "collect"].settings.policy == "controller"  # type: ignore[attr-defined]
    assert str(told[2, "collect"].session.data_path) == "data/Pong.round2.zarr"
    assert str(told[2, "collect"].session.run_path) == "runs/Pong"
    assert told[3, "train-mdnrnn"].settings.init_from == "runs/Pong.round2"  # type: ignore[attr-defined]
    assert [path.name for path in told[3, "train-mdnrnn"].session.data_paths] == [
        "Pong.zarr", "Pong.round2.zarr", "Pong.round3.zarr",
    ]  # fmt: skip
    assert told[1, "train-controller"].settings.init_from == ""  # type: ignore[attr-defined]


def test_later_rounds_may_train_v_on_as_well(tmp_path: Path) -> None:
    config = tmp_path / "anew.toml"
    config.write_text("[curriculum.Pong]\nlater_vae = 'train'\n[train-vae.Pong.later]\nsteps = 9\n")
    settings = CurriculumSettings(envs="Pong,Breakout", rounds=3)
    pong, breakout = (chain.steps for chain in pipelines_of(Session(""), settings, Sources(config=config)))
    seeing = [step for step in pong if step.stage == "train-vae"]
    assert [(step.round, step.settings.init_from) for step in seeing] == [
        (1, ""),
        (2, "runs/Pong"),
        (3, "runs/Pong.round2"),
    ]  # type: ignore[attr-defined]
    assert [step.settings.episodes for step in seeing] == [50, 0, 0]  # type: ignore[attr-defined]
    assert seeing[2].settings.steps == 9  # type: ignore[attr-defined]
    assert len(seeing[2].session.data_paths) == 3
    assert [step.stage for step in breakout].count("train-vae") == 1
    for told, count in (("keep", 1), ("train", 3)):
        chains = pipelines_of(Session(""), replace(settings, later_vae=told), Sources(config=config))
        assert [[step.stage for step in chain.steps].count("train-vae") for chain in chains] == [count, count]


@pytest.mark.parametrize(("name", "later"), [("even_after", 0), ("starts", 1)])
def test_only_the_first_round_begins_anew(tmp_path: Path, name: str, later: int) -> None:
    (tmp_path / "chosen.toml").write_text(f"[train-controller]\n{name} = 5\n")
    chosen = Sources(config=tmp_path / "chosen.toml")
    steps = pipelines_of(Session(""), CurriculumSettings(envs="Pong", rounds=2), chosen)[0].steps
    assert [getattr(step.settings, name) for step in steps if step.stage == "train-controller"] == [5, later]


def test_an_environment_has_as_many_rounds_as_the_preset_says_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "rounds.toml").write_text(
        "[curriculum.Pong]\nrounds = 3\n[collect.Pong.later]\nepisodes = 7\n[train-mdnrnn.Pong.later]\nsteps = 8\n"
    )
    sources = Sources(config=tmp_path / "rounds.toml")

    def chains(rounds: int) -> list[Pipeline]:
        return pipelines_of(Session(""), CurriculumSettings(envs="Pong,Breakout", rounds=rounds), sources)

    assert [len(chain.runs) for chain in chains(0)] == [3, 1]
    assert [len(chain.runs) for chain in chains(2)] == [2, 2]
    assert [len(chain.runs) for chain in chains(1)] == [1, 1]
    told = {(step.round, step.stage): step.settings for step in chains(0)[0].steps}
    collected = [told[number, "collect"] for number in (1, 2, 3)]
    assert [(one.episodes, one.policy) for one in collected] == [(50, "auto"), (7, "controller"), (7, "controller")]  # type: ignore[attr-defined]
    assert [told[number, "train-mdnrnn"].steps for number in (1, 3)] == [4000, 8]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_two_rounds_run_through_and_are_up_to_date_afterwards(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    words = ("curriculum", "--envs", TINY, "--rounds", "2", "--config", config)
    done = run(tmp_path, *words)
    assert f"{TINY}, round 2" in done.stdout
    assert "V is taken over from" in done.stderr
    inputs = json.loads((tmp_path / "runs" / f"{SLUG}.round2" / "mdnrnn" / "manifest.json").read_text())["recipe"][
        "inputs"
    ]
    assert {"latents", f"latents-{SLUG}.round2", "vae", "start"} == set(inputs)
    log = logged(tmp_path / "runs" / f"{SLUG}.round2" / "controller")
    assert log[0]["generation"] == 0  # where it goes on from is validated first
    assert len(log[0]["validation"]) == 3
    record = tmp_path / "runs" / f"{SLUG}.round2" / "curriculum.json"
    took = json.loads(record.read_text())["took"]
    assert took[f"{TINY} train-vae"]["memory"] > 100_000_000
    again = run(tmp_path, *words)
    assert again.stderr.count(": up to date: ") == 11
    assert json.loads(record.read_text())["took"] == took


@pytest.mark.slow
def test_what_is_not_kept_is_not_made_again(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    words = ("curriculum", "--envs", TINY, "--config", config)
    first = run(tmp_path, *words, "--keep", "artifacts")
    assert "--keep artifacts freed" in first.stderr
    assert not list((tmp_path / "data").glob("*.zarr"))
    assert not (tmp_path / "runs" / SLUG / "latents").exists()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / SLUG).rglob("weights.safetensors")}
    assert len(before) == 3
    again = run(tmp_path, *words, "--keep", "artifacts")
    assert "up to date; its episodes or latents were not kept" in again.stderr
    assert again.stdout == first.stdout
    changed = run(tmp_path, *words, "--max-generations", "2", "--keep", "data")
    assert "collect: created" in changed.stderr  # the same episodes again, so that V and M stay
    assert "train-vae: up to date" in changed.stderr
    assert "max_generations 3 -> 2" in changed.stderr
    assert (tmp_path / "data" / f"{SLUG}.zarr").exists()
    assert not (tmp_path / "runs" / SLUG / "latents").exists()


@pytest.mark.slow
def test_environments_run_side_by_side_as_they_do_alone(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    envs = f"{TINY},{TINY.replace('Tiny', 'Fragile')}"
    words = ("curriculum", "--envs", envs, "--config", config)
    together = run(tmp_path, *words, "--jobs", "2", WM_TEST_BREAK="raise:none:")
    assert re.search(rf"^{TINY} \| \[1/6\] {TINY} collect: created", together.stderr, re.M)
    assert together.stdout.count("preview, n=4") == 2
    assert (tmp_path / "runs" / "report.html").exists()
    alone = run(tmp_path, *words, WM_TEST_BREAK="raise:none:")
    assert alone.stderr.count(": up to date: ") == 12


@pytest.mark.slow
def test_the_next_environment_begins_with_the_weights_of_the_one_before(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    other = TINY.replace("Tiny", "Fragile")
    broken = {"WM_TEST_BREAK": "raise:none:"}
    words = ("curriculum", "--envs", f"{TINY},{other}", "--config", config, "--warm-start")
    run(tmp_path, *words, **broken)
    slug = SLUG.replace("Tiny", "Fragile")
    made = json.loads((tmp_path / "runs" / slug / "vae" / "manifest.json").read_text())["recipe"]
    assert made["settings"]["matching"] is True
    assert "start" in made["inputs"]
    again = run(tmp_path, "train-vae", "--env", other, "--config", config, **broken)
    assert "up to date" in again.stdout  # its start is not thrown away
    longer = run(tmp_path, "train-vae", "--env", other, "--config", config, "--steps", "31", **broken)
    assert "created" in longer.stdout


def test_every_stage_is_foreseen_before_anything_is_made_and_too_much_is_refused(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    words = ("curriculum", "--envs", TINY, "--config", config, "--rounds", "2")
    told = json.loads(run(tmp_path, *words, "--dry-run", "--json").stdout)
    stages = [plan["stage"] for plan in told["environments"][TINY]]
    assert stages == [*VMC, *(name for name in VMC if name != "train-vae")]
    assert all(plan["memory_bytes"] > 0 and plan["seconds"][1] > 0 for plan in told["environments"][TINY])
    assert told["disk_bytes"] > 10_000
    words = ("curriculum", "--envs", TINY, "--config", config, "--disk-budget", "20kB")
    refused = outcome(tmp_path, *words)
    assert refused.returncode == 74
    assert "--disk-budget leaves 20.0 kB; free some space" in refused.stderr
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "runs").exists()


def test_a_missing_package_is_told_before_the_others_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    def plans(chain: Pipeline) -> list[Plan]:
        if chain.env == "Pong":
            raise MissingPackage("Pong needs a package that is not installed; run `pip install ale-py`.")
        return [Plan("collect", Path("d"), "", 10, 10, (1, 1))]

    monkeypatch.setattr(foresight, "_plans", plans)
    found = foresight.estimate(Session(""), CurriculumSettings(envs="Pong,CartPole"), Sources())
    assert found.objections() == [
        "Pong will fail: Pong needs a package that is not installed; run `pip install ale-py`."
    ]
    found.require()


def test_what_is_not_kept_makes_room_for_the_next_environment() -> None:
    def plans(env: str) -> list[Plan]:
        collected = Plan("collect", Path(env), "", 600, 1, (1, 1))
        return [collected, Plan("train-mdnrnn", Path(env), "", 100, 1, (1, 1), scratch=50, latents=80)]

    every = {env: plans(env) for env in ("a", "b", "c")}
    disk = {keep: foresight.Estimate(every, {}, None, keep).disk for keep in ("all", "data", "artifacts")}
    assert disk == {"all": 2150, "data": 1990, "artifacts": 790}


def test_what_a_later_round_will_take_is_told_as_that_rounds() -> None:
    stages = ("collect", "train-vae", "evaluate", "collect", "evaluate", "collect")
    plans = {"a": [Plan(stage, Path("a"), "", 1, 1, (1, 1)) for stage in stages]}
    told = foresight.table_of(foresight.Estimate(plans, {}, None, "all")).splitlines()[2:8]
    assert [re.split(r" {2,}", line)[1] for line in told] == [
        "collect", "train-vae", "evaluate", "collect, round 2", "evaluate, round 2", "collect, round 3",
    ]  # fmt: skip


def test_environments_side_by_side_need_more_at_a_time_and_take_less_time() -> None:
    def plans(env: str, size: int, seconds: int) -> list[Plan]:
        collected = Plan("collect", Path(env), "", 100 * size, 10 * size, (1, seconds))
        return [collected, Plan("train-vae", Path(env), "", size, size, (1, 1), scratch=size)]

    every = {"a": plans("a", 1, 9), "b": plans("b", 2, 3), "c": plans("c", 3, 4)}
    alone, together = (foresight.Estimate(every, {}, None, "artifacts", jobs) for jobs in (1, 2))
    assert (alone.memory, together.memory) == (30, 50)
    assert (alone.seconds, together.seconds) == ((6, 19), (4, 10))
    assert (alone.disk, together.disk) == (303 + 1 + 2 + 3, 303 + 202 + 1 + 3 + 2)


def test_each_of_two_environments_has_half_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def plans(chain: Pipeline) -> list[Plan]:
        found.append((chain.steps[0].session.processes, torch.get_num_threads()))
        return [Plan("collect", Path("d"), "", 10, 10, (1, 1))]

    monkeypatch.setattr(foresight, "_plans", plans)
    threads = torch.get_num_threads()
    foresight.estimate(Session("", workers=6), CurriculumSettings(envs="Pong,CartPole", jobs=5), Sources())
    assert found == [(3, 3), (3, 3)]
    assert torch.get_num_threads() == threads


def test_an_environment_that_breaks_when_it_is_probed_does_not_take_the_others_down(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    other = TINY.replace("Tiny", "Fragile")
    words = ("curriculum", "--envs", f"{other},{TINY}", "--config", config, "--dry-run", "--json")
    told = json.loads(run(tmp_path, *words, WM_TEST_BREAK="raise:any:").stdout)
    assert len(told["environments"][TINY]) == 6
    assert re.search(f"{other} will fail: .*the environment broke", told["objections"][0])


def test_a_dataset_that_holds_more_than_the_curriculum_collected_is_not_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = pipelines_of(Session(""), CurriculumSettings(envs=TINY), Sources(assignments=()))[0]
    step = chain.steps[0]
    data = write_dataset(tmp_path / "mine.zarr", 4)
    for asked, left in ((3, True), (4, False)):
        settings = replace(step.settings, episodes=asked)  # type: ignore[call-arg]
        own = replace(step, session=replace(step.session, data=(data,), run=tmp_path / "run"), settings=settings)
        curriculum.delete_intermediate(Pipeline(TINY, [own]), "artifacts")
        assert data.exists() is left
    assert "stays; it holds 4 episodes, 3 were asked for" in capsys.readouterr().err


def test_a_warm_start_from_an_environment_that_failed_begins_from_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = {}

    def see(session: Session, settings: Any) -> Result:
        seen[session.env] = settings.init_from
        return train(session, settings)

    acting(monkeypatch, collect=fail, train_vae=see, evaluate=score)
    monkeypatch.chdir(tmp_path)
    curriculum.curriculum(Session(""), CurriculumSettings(envs="Pong,Breakout", warm_start=True), Sources())
    assert seen == {"Breakout": ""}
    assert capsys.readouterr().err.count("Breakout: begins from scratch; runs/Pong has no vae to start from") == 1


def test_where_a_chain_starts_from_is_part_of_what_it_is() -> None:
    def fingerprint(**settings: Any) -> str:
        return pipelines_of(Session(""), CurriculumSettings(envs="Pong,Breakout", **settings), Sources())[1].fingerprint

    assert fingerprint() != fingerprint(warm_start=True)
    before = CurriculumSettings(envs="CartPole,Breakout", warm_start=True)
    assert pipelines_of(Session(""), before, Sources())[1].fingerprint != fingerprint(warm_start=True)


def test_what_follows_a_change_is_not_foreseen_as_up_to_date(chain: Path) -> None:
    config = small_config(chain, SMALL)

    def plans(*assignments: str) -> list[bool]:
        told = run(chain, "curriculum", "--envs", TINY, "--config", config, "--dry-run", "--json", *assignments).stdout
        return [plan["what"].startswith("up to date") for plan in json.loads(told)["environments"][TINY]]

    assert plans() == [True] * 6
    assert plans("--max-generations", "7") == [True, True, True, False, False, False]
