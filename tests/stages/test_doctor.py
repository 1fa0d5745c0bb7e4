import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from stages.cli import run
from tests.conftest import command, environment
from tests.test_extras import install
from wm import extras, installation
from wm.envs.known_envs import KNOWN_ENVS
from wm.envs.registry import EnvConfig
from wm.errors import MissingPackage
from wm.installation import Check
from wm.settings import COMMANDS


def test_every_environment_is_stepped_and_the_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    checks = {check["what"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {f"environment {name}" for name in KNOWN_ENVS} <= checks.keys()
    assert "ALE/Pong-v5: built and stepped in" in checks["environment Pong"]["finding"]
    assert {"Python", "device", "memory", "disk"} <= checks.keys()


def test_what_is_missing_has_a_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = EnvConfig.make

    def make(self: EnvConfig, labelled: bool = False) -> object:
        if "Lunar" in self.name:
            raise MissingPackage("LunarLander needs a package that is not installed.")
        return made(self, labelled)

    monkeypatch.setattr(EnvConfig, "make", make)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["doctor"]) == 0  # the others can be trained on
    text = capsys.readouterr().out
    assert re.search(r"environment LunarLander +pip install 'gymnasium\[box2d\]'", text)
    assert max(map(len, text.splitlines())) <= 80


def test_an_extra_has_one_command_here_and_in_export(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda extra: False)
    assert run(["doctor", "--json"]) == 0
    checks = {check["what"]: check["remedy"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert run(["export", "d.zarr", "--to", "mp4"]) == 69
    assert checks["extra mp4"] in capsys.readouterr().err


def test_without_any_environment_or_room_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = [Check(f"environment {name}", "missing", "not there", "pip install it") for name in KNOWN_ENVS]
    assert installation.problems([Check("Python", "ok", ""), *missing]) == missing
    assert installation.problems([*missing[1:], Check("environment Pong", "ok", "")]) == []
    monkeypatch.setattr(installation, "LITTLE_DISK", 1e18)
    assert run(["doctor"]) == 69
    assert "free some space" in capsys.readouterr().err


def test_an_extra_whose_import_fails_is_not_ok(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_extra.py").write_text('raise ImportError("cannot import name descriptor")')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(extras.EXTRAS, "tb", extras.Extra(("broken_extra",), "curves"))
    (check,) = [check for check in installation._extras() if check.what == "extra tb"]
    assert (check.state, check.remedy) == ("missing", extras.install_command("tb"))
    assert check.finding == "curves: the import of broken_extra failed: cannot import name descriptor"


def test_torch_that_cannot_be_imported_is_a_finding(tmp_path: Path) -> None:
    """PYTORCH_JIT has a value that torch refuses with a ValueError."""
    done = subprocess.run(
        command("doctor", "--json"), env=environment(PYTORCH_JIT="x"), cwd=tmp_path, capture_output=True, text=True
    )
    checks = {check["what"]: check for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, checks["torch"]["state"]) == (69, "problem")
    assert checks["torch"]["finding"].startswith("Unknown setting of PYTORCH_JIT.")
    assert checks["environment Catch"]["state"] == "ok"


def test_an_outdated_package_stops_every_stage_and_the_doctor_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "gymnasium", "0.29.1")
    monkeypatch.syspath_prepend(str(tmp_path))
    said = "gymnasium is 0.29.1 but wm needs gymnasium[box2d]>=1.4"
    for name in COMMANDS:
        assert run([name, *(() if name == "curriculum" else ("--env", "Pong"))]) == 69, name
        assert capsys.readouterr().err == f"wm: {said}; run `pip install 'gymnasium[box2d]>=1.4'`.\n"
    assert run(["doctor", "--json"]) == 69
    (check,) = [check for check in json.loads(capsys.readouterr().out)["checks"] if check["what"] == "packages"]
    assert (check["finding"], check["remedy"]) == (said, "pip install 'gymnasium[box2d]>=1.4'")
    assert run(["collect", "--help"]) == 0


def test_an_environment_that_raises_anything_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(self: EnvConfig, labelled: bool = False) -> object:
        raise UnicodeError("not of this version")

    monkeypatch.setattr(EnvConfig, "make", make)
    assert {check.finding for check in installation._environments(time.monotonic)} == {
        "it raised UnicodeError: not of this version"
    }
