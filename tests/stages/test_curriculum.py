import pytest

from stages import curriculum
from stages.options import Sources
from stages.session import Result, Session
from wm.errors import BadData, DiskProblem, UsageProblem
from wm.settings import CurriculumSettings


def score(session: Session, settings: object) -> Result:
    metrics = {
        "mean": 1.0, "ci95": 0.5, "episodes": 10, "preview": True, "env_steps": 1234,
        "random": {"mean": 0.0, "ci95": 0.1, "episodes": 10},
    }  # fmt: skip
    return Result("evaluate", "made", session.run_path, "f", metrics, "", 60.0)


def fail(session: Session, settings: object) -> Result:
    if session.env == "Pong":
        raise BadData("broken")
    return score(session, settings)


def test_one_environments_failure_does_not_take_the_others_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curriculum, "STAGES", {"collect": fail, "train-vae": score, "evaluate": score})
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
