import json
from pathlib import Path

import pytest

from stages import doctor
from stages.cli import run
from stages.doctor import Check
from wm.envs.known_envs import KNOWN_ENVS
from wm.envs.registry import EnvConfig
from wm.errors import MissingPackage


def test_every_environment_is_stepped_and_the_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    found = {check["what"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {f"environment {name}" for name in KNOWN_ENVS} <= found.keys()
    assert "stepped" in found["environment Pong"]["found"]
    assert {"Python", "device", "memory", "disk"} <= found.keys()


def test_what_is_missing_is_told_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = EnvConfig.make

    def make(self: EnvConfig, labelled: bool = False) -> object:
        if "Lunar" in self.name:
            raise MissingPackage("LunarLander needs a package that is not installed.")
        return made(self, labelled)

    monkeypatch.setattr(EnvConfig, "make", make)
    assert run(["doctor"]) == 0  # the others can be learned
    told = capsys.readouterr().out
    assert "environment LunarLander: pip install 'gymnasium[box2d]'" in told


def test_without_any_environment_or_room_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = [Check(f"environment {name}", "missing", "not there", "pip install it") for name in KNOWN_ENVS]
    assert doctor.problems([Check("Python", "ok", ""), *missing]) == missing
    assert doctor.problems([*missing[1:], Check("environment Pong", "ok", "")]) == []
    monkeypatch.setattr(doctor, "LITTLE_DISK", 1e18)
    assert run(["doctor"]) == 69
    assert "free some space" in capsys.readouterr().err
