from pathlib import Path
from typing import Any

import pytest

from wm.artifacts import runs
from wm.artifacts.runs import Artifact
from wm.report.rounds import Round, first_of_rounds, is_continued, read_rounds


def test_a_round_of_any_number_is_read_without_looking_for_all_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, folders = runs.load, list[Path]()

    def counted(folder: Path, kind: str, command: str) -> Artifact:
        folders.append(folder)
        assert len(folders) < 10
        return load(folder, kind, command)

    monkeypatch.setattr(runs, "load", counted)
    for name in ("Pong", "Pong.round2", "Pong.round99999999999"):
        (tmp_path / name / "controller").mkdir(parents=True)
        (tmp_path / name / "controller" / "manifest.json").write_text("{}")
    damaged: list[str] = []
    assert read_rounds(tmp_path / "Pong.round99999999999", damaged) == []
    assert [Path(sentence.split()[0]).parts[-3] for sentence in damaged] == ["Pong", "Pong.round2"]


def a_round(line: dict[str, Any], action_repeat: int = 1, open_loop: dict[str, Any] | None = None) -> Round:
    settings = {"rollout_steps": 10, "num_envs": 8}
    controller = Artifact(Path("controller"), {"recipe": {"settings": settings}})
    mdnrnn = Artifact(Path("mdnrnn"), {"metrics": {"open_loop": open_loop or {}}})
    return Round(1, controller, mdnrnn, [line], action_repeat)


def test_rewards_in_reality_and_in_the_dream_are_per_step_of_the_environment() -> None:
    """One dreamt action stands for four steps where each action is taken four times, as in CarRacing."""
    line = {"in": "dream", "returns": [40.0, 40.0], "validation": [80.0, 120.0], "env_steps": 800}
    one = a_round(line, action_repeat=4)
    assert one.real_reward == 1000 * 200 / 800
    assert one.dreamt_reward == 1000 * 80 / (80 * 4) == one.real_reward


def test_a_validation_in_the_dream_is_no_real_return() -> None:
    line = {"in": "dream", "returns": [40.0], "validation": [80.0, 120.0], "env_steps": 0}
    assert a_round(line).validation is None
    assert a_round(line | {"env_steps": 50}).validation is not None


def test_a_baseline_without_an_error_leaves_no_ratio() -> None:
    still = {"M": 0.1, "linear": 0.0, "persistence": 0.0, "mean": 0.0}
    assert a_round({}, open_loop={"15": still}).error is None
    assert a_round({}, open_loop={"1": None}).error is None
    assert a_round({}, open_loop={"5": still | {"linear": 0.2, "persistence": 0.4, "mean": 0.4}}).error == 0.5


def test_only_plain_digits_number_a_round(tmp_path: Path) -> None:
    for name in ("Pong.round²", "Pong.round", "Pong.round-1", "Pong"):
        assert first_of_rounds(tmp_path / name) == tmp_path / name
        assert not is_continued(tmp_path / name)
        assert read_rounds(tmp_path / name) == []
    assert first_of_rounds(tmp_path / "Pong.round3") == tmp_path / "Pong"
    (tmp_path / "Pong.round3" / "controller").mkdir(parents=True)
    assert is_continued(tmp_path / "Pong.round2")


@pytest.mark.parametrize(("baseline", "error"), [(0.0, None), (2.0, 0.5)])
def test_of_a_constant_z_no_round_has_an_error(tmp_path: Path, baseline: float, error: float | None) -> None:
    errors = {"M": 1.0, "linear": 4.0, "persistence": baseline, "mean": 3.0}
    mdnrnn = Artifact(tmp_path, {"metrics": {"open_loop": {"5": errors, "30": None}}})
    assert Round(1, mdnrnn, mdnrnn, []).error == error
