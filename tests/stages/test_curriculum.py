import json
from pathlib import Path

import pytest

from stages import curriculum
from stages.evolving import logged
from stages.options import Sources
from stages.session import Result, Session
from tests.conftest import SLUG, TINY, run
from wm.errors import BadData, DiskProblem, UsageProblem
from wm.settings import CurriculumSettings


def score(session: Session, settings: object) -> Result:
    metrics = {
        "mean": 1.0, "ci95": 0.5, "episodes": 10, "preview": True, "env_steps": 1234,
        "random": {"mean": 0.0, "ci95": 0.1, "episodes": 10},
    }  # fmt: skip
    return Result("evaluate", "made", session.run_path, "f", metrics, "", 60.0)


def train(session: Session, settings: object) -> Result:
    return Result("train-vae", "made", session.run_path, "f", {}, "", 5.0)


def fail(session: Session, settings: object) -> Result:
    if session.env == "Pong":
        raise BadData("broken")
    return train(session, settings)


def test_one_environments_failure_does_not_take_the_others_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curriculum, "STAGES", {"collect": fail, "train-vae": train, "evaluate": score})
    monkeypatch.setattr(curriculum, "stage_settings", lambda sources, env: dict.fromkeys(curriculum.STAGES))
    verdicts = curriculum.curriculum(Session(""), CurriculumSettings(envs="Pong,Breakout"), Sources())
    assert [verdict.failure is None for verdict in verdicts] == [False, True]
    table = curriculum.closing(verdicts)
    assert "Pong         -              -          failed" in table
    assert "Breakout     0.0 ± 0.1      1.0 ± 0.5  preview, n=10  1,234" in table


def test_a_full_disk_stops_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(session: Session, settings: object) -> Result:
        raise DiskProblem("full")

    monkeypatch.setattr(curriculum, "STAGES", {"collect": full})
    monkeypatch.setattr(curriculum, "stage_settings", lambda sources, env: {"collect": None})
    with pytest.raises(DiskProblem):
        curriculum.curriculum(Session(""), CurriculumSettings(envs="Pong,Breakout"), Sources())


def test_every_environment_is_checked_before_the_first_one_starts() -> None:
    with pytest.raises(UsageProblem, match="did you mean Breakout"):
        curriculum.env_names(CurriculumSettings(envs="Pong, Braekout"))


def test_the_vae_trains_on_the_episodes_that_were_collected() -> None:
    chosen = curriculum.stage_settings(Sources(preset="quick"), "CarRacing")
    assert chosen["train-vae"].episodes == chosen["collect"].episodes  # type: ignore[attr-defined]


def test_a_later_round_collects_with_the_controller_before_it_and_goes_on_from_there() -> None:
    steps = curriculum.steps_of(Session(""), "Pong", Sources(preset="quick"), rounds=3)
    assert [step.stage for step in steps].count("train-vae") == 1
    told = {(step.round, step.stage): step for step in steps}
    assert str(told[2, "collect"]) == "Pong collect, round 2"
    assert told[2, "collect"].settings.policy == "controller"  # type: ignore[attr-defined]
    assert str(told[2, "collect"].session.data_path) == "data/Pong.round2.zarr"
    assert str(told[2, "collect"].session.run_path) == "runs/Pong"
    assert told[3, "train-mdnrnn"].settings.from_ == "runs/Pong.round2"  # type: ignore[attr-defined]
    assert [path.name for path in told[3, "train-mdnrnn"].session.data_paths] == [
        "Pong.zarr", "Pong.round2.zarr", "Pong.round3.zarr",
    ]  # fmt: skip
    assert told[1, "train-controller"].settings.from_ == ""  # type: ignore[attr-defined]


def test_two_rounds_run_through_and_are_up_to_date_afterwards(tmp_path: Path) -> None:
    tables = {
        "collect": "episodes = 12\nsize = 32",
        "train-vae": "steps = 30\nbatch = 16\nlatent = 4\nvalidate_every = 10",
        "train-mdnrnn": "steps = 40\nbatch = 8\nseq_len = 8\nhidden = 16\nvalidate_every = 20",
        "train-controller": "popsize = 6\nmax_generations = 3\nvalidate_every = 2\nvalidation_episodes = 3",
        "dream": "dreams = 4\nmax_steps = 20\nframes = 8\ncontext = 4",
        "evaluate": "episodes = 4",
    }
    config = tmp_path / "small.toml"
    config.write_text("\n".join(f"[{name}]\n{values}" for name, values in tables.items()))
    words = ("curriculum", "--envs", TINY, "--rounds", "2", "--config", str(config))
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
    again = run(tmp_path, *words)
    assert again.stderr.count(": up to date: ") == 11
