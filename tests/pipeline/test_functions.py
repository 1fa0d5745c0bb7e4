"""Collecting and training from Python: silent, and the same as the commands."""

import itertools
import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import wm
from tests.conftest import SLUG, TINY, run
from wm.episodes.archive import read_provenance
from wm.episodes.dataset import Dataset
from wm.errors import MissingInput, RecipeMismatch, Stopped, UsageProblem
from wm.pipeline.stage import Result

SMALL: dict[str, dict[str, Any]] = {  # as tests.conftest gives them to the commands
    "train_vae": {"steps": 60, "batch": 16, "latent": 4, "validate_every": 10},
    "train_mdnrnn": {"steps": 150, "batch": 8, "seq_len": 8, "hidden": 16, "validate_every": 20},
    "train_controller": {"popsize": 6, "max_generations": 6, "validate_every": 2, "validation_episodes": 4},
}
TRAININGS = {"train_vae": "vae", "train_mdnrnn": "mdnrnn", "train_controller": "controller"}


def files(folder: Path) -> dict[str, str]:
    """Each file of an artifact that its settings and inputs determine, with its digest; others tell times."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return {
        name: entry["sha256"]
        for name, entry in manifest["files"].items()
        if name in ("model.json", "weights.safetensors", "reconstructions.png")
    }


def train(name: str, data: Path, folder: Path) -> Result:
    given = {} if name == "train_controller" else {"data": data}  # C learns from what the run has
    result: Result = getattr(wm, name)(TINY, run=folder, **given, **SMALL[name])
    return result


def test_they_find_what_the_commands_made_up_to_date(chain: Path) -> None:
    """Settings, seed and inputs that are given in Python have the fingerprints of the commands."""
    data, folder = chain / "data" / f"{SLUG}.zarr", chain / "runs" / SLUG
    results = [wm.collect(TINY, data=data, episodes=24, size=32)]
    results += [train(name, data, folder) for name in SMALL]
    assert [result.status for result in results] == ["up to date"] * 4
    assert [result.path for result in results] == [data, *(folder / name for name in TRAININGS.values())]
    assert {result.run for result in results[1:]} == {folder}


def test_they_make_what_the_commands_made_byte_by_byte_even_when_interrupted(
    chain: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, folder = tmp_path / "data" / f"{SLUG}.zarr", tmp_path / "runs" / SLUG
    wm.collect(TINY, data=data, episodes=10, size=32)
    assert wm.collect(TINY, data=data, episodes=24, size=32).status == "resumed"
    steps = iter(range(60))

    def stop() -> None:
        raise Stopped(2)

    runtime = wm.Runtime(stop_requested=lambda: next(steps) == 25, raise_if_stopped=stop)
    with pytest.raises(Stopped):
        wm.train_vae(TINY, data=data, run=folder, runtime=runtime, **SMALL["train_vae"])
    results = {name: train(name, data, folder) for name in SMALL}
    assert [result.status for result in results.values()] == ["resumed", "created", "created"]
    for name in TRAININGS.values():
        assert files(folder / name) == files(chain / "runs" / SLUG / name)
    assert wm.load(results["train_controller"].run, data=data).controller is not None
    assert capfd.readouterr() == ("", "")


def test_a_session_of_collecting_that_was_stopped_counts(tmp_path: Path) -> None:
    checks, data = iter(range(10_000)), tmp_path / "d.zarr"

    def stop() -> None:
        if next(checks) == 20:
            raise Stopped(2)

    runtime = wm.Runtime(clock=map(float, itertools.count()).__next__, raise_if_stopped=stop)
    with pytest.raises(Stopped):
        wm.collect(TINY, data=data, episodes=24, size=32, runtime=runtime)
    (stopped,) = read_provenance(data)
    assert 0 < stopped["episodes"] == Dataset.open(data).episodes < 24
    result = wm.collect(TINY, data=data, episodes=24, size=32)
    assert [one["episodes"] for one in read_provenance(data)] == [stopped["episodes"], 24]
    assert result.seconds >= stopped["wall_seconds"] > 1


@pytest.mark.slow
def test_a_session_of_collecting_that_was_killed_counts_until_its_last_minute(tmp_path: Path) -> None:
    program = """if True:
        import itertools, os, signal, sys, wm
        checks = itertools.count()
        def kill() -> None:
            if next(checks) == 140:
                os.kill(os.getpid(), signal.SIGKILL)
        clock = map(float, itertools.count(0, 10)).__next__
        wm.collect("Catch", data=sys.argv[1], episodes=192, size=32, runtime=wm.Runtime(clock, raise_if_stopped=kill))
    """
    data = tmp_path / "d.zarr"
    assert subprocess.run([sys.executable, "-c", program, str(data)]).returncode == -signal.SIGKILL
    (killed,) = read_provenance(data)  # of its two parts, each of which took more than a minute
    assert killed["episodes"] == Dataset.open(data).episodes == 128
    assert killed["wall_seconds"] > 128 * 10
    result = wm.collect("Catch", data=data, episodes=192, size=32)
    assert result.seconds > killed["wall_seconds"]
    assert [one["episodes"] for one in read_provenance(data)] == [128, 192]


def test_a_command_resumes_what_python_began_and_its_record_is_a_command(chain: Path, tmp_path: Path) -> None:
    data = chain / "data" / f"{SLUG}.zarr"
    result = wm.train_vae(TINY, data=data, run=tmp_path / "r", seed=3, preset="quick", steps=4, batch=8, tf32=False)
    command = json.loads((result.path / "manifest.json").read_text())["provenance"]["command"]
    words = command.split()
    assert words[:3] == ["wm", "train-vae", "--env"]
    assert "--preset quick --seed 3 --set steps=4 --set batch=8 --set tf32=False" in command
    assert json.loads(run(tmp_path, *words[1:], "--json").stdout)["status"] == "up to date"


class Told:
    """A tracker of a caller's own."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.images: list[tuple[int, str]] = []

    def __call__(self, folder: Path, step: int) -> "Told":
        return self

    def add_scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.steps.append(step)

    def add_image(self, folder: Path, step: int, name: str, png: bytes) -> None:
        self.images.append((step, name))

    def close(self) -> None:
        pass


def test_the_caller_is_told(chain: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    tracker = Told()
    data, runtime = chain / "data" / f"{SLUG}.zarr", wm.Runtime(time.monotonic, log=lines.append, track=tracker)
    for steps in (10, 12):
        result = wm.train_vae(
            TINY, data=data, run=tmp_path, steps=steps, batch=8, latent=4, validate_every=10, runtime=runtime
        )
        assert (result.status, result.path) == ("created", tmp_path / "vae")
    assert any("steps 10 -> 12" in line for line in lines)
    assert tracker.images == [(10, "reconstructions"), (12, "reconstructions")]
    assert max(tracker.steps) == 12
    assert not list(tmp_path.rglob("tensorboard"))  # the caller's tracker is the only one
    assert "vae: created in" in str(result)
    assert "squared error" in str(result)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"step": 5}, UsageProblem, "train-vae has no setting 'step'; did you mean steps"),
        ({"steps": 0}, UsageProblem, "steps is 0; expected at least 1"),
        ({"steps": "many"}, UsageProblem, r"steps is 'many' \(wm.train_vae\); expected a whole number"),
        ({"steps": 2.5}, UsageProblem, r"steps is 2.5 \(wm.train_vae\); expected a whole number"),
        ({"preset": "labtop"}, UsageProblem, "preset is 'labtop'; did you mean laptop"),
        ({"seed": -1}, UsageProblem, "seed is -1; expected a whole number from 0 to"),
        ({"seed": 2**53 + 1}, UsageProblem, "seed is 9007199254740993; expected a whole number from 0 to"),
        ({"seed": 1.5}, UsageProblem, "seed is 1.5; expected a whole number"),
        ({"device": "gpu"}, UsageProblem, "device is 'gpu'; expected one of auto, cpu, cuda, mps"),
        ({"name": "mdnrnn"}, UsageProblem, "'mdnrnn', which is reserved"),
        ({"data": []}, UsageProblem, "data is empty; expected the path of a dataset"),
        ({"data": "s3://bucket/d.zarr"}, UsageProblem, "in Python it is a folder, only commands take an address"),
        ({"disk_budget": "much"}, UsageProblem, "disk_budget is 'much'; expected a number with a unit"),
        ({"disk_budget": -5}, UsageProblem, "disk_budget is -5; expected a number of bytes, or a text such as '500MB'"),
        ({"disk_budget": [1]}, UsageProblem, r"disk_budget is \[1\]; expected a number of bytes"),
        ({"data": [3]}, UsageProblem, "data is 3; expected the path of a folder"),
        ({"data": b"d.zarr"}, UsageProblem, "data is b'd.zarr'; expected the path"),
        ({"data": "a\0b"}, UsageProblem, "expected the path of a folder"),
        ({"run": ""}, UsageProblem, "run is ''; expected the path of a folder"),
        ({"run": "x" * 300}, UsageProblem, "has a name that is too long for the disk; give a shorter one"),
        ({"run": "s3://bucket/r"}, UsageProblem, "run is 's3://bucket/r'; in Python it is a folder"),
        ({"run": 3}, UsageProblem, "run is 3; expected the path of a folder"),
        ({"run": __file__}, UsageProblem, "which is a file; expected the path of a folder"),
        ({"name": 3}, UsageProblem, "name is 3; expected that of an artifact"),
        ({"name": ""}, UsageProblem, "name is ''; expected that of an artifact"),
        ({"preset": "*"}, UsageProblem, "preset is '\\*'; expected one of"),
        ({"preset": "/quick"}, UsageProblem, "preset is '/quick'; did you mean quick"),
        ({"preset": 3}, UsageProblem, "preset is 3; expected the name of one"),
        ({"keep_current": "no"}, UsageProblem, "keep_current is 'no'; expected True or False"),
        ({"env": None}, UsageProblem, "env is None; expected the name of an environment"),
        ({"env": "x" * 300, "run": None}, UsageProblem, "has a name that is too long for the disk; give a shorter one"),
        ({"device": np.zeros(2)}, UsageProblem, r"device is array\(\[0., 0.\]\); expected one of auto, cpu"),
        ({"seed": np.zeros((2, 2))}, UsageProblem, r"seed is array\(\[\[0., 0.\], \[0., 0.\]\]\); expected a whole"),
        ({"steps": np.zeros((2, 2))}, UsageProblem, r"steps is array\(\[\[0., 0.\], \[0., 0.\]\]\) \(wm.train_vae"),
        ({"steps": 10**5000}, UsageProblem, "steps is "),
        ({"network": 10**5000}, UsageProblem, "network is a value of type int"),
        ({"disk_budget": "x" * 10_000}, UsageProblem, r"disk_budget is 'x{499}\.\.\.; expected"),
        ({"env": " "}, UsageProblem, "env is ' '; expected the name of an environment"),
        ({"data": "nothing.zarr"}, MissingInput, "nothing.zarr"),
        ({"env": "Catch"}, RecipeMismatch, "Catch"),
    ],
)
def test_wrong_values_are_one_sentence_and_nothing_is_written(
    chain: Path, tmp_path: Path, arguments: dict[str, Any], error: type[wm.WmError], message: str
) -> None:
    usual = {"env": TINY, "data": chain / "data" / f"{SLUG}.zarr", "run": tmp_path / "run", "batch": 8}
    with pytest.raises(error, match=message):
        wm.train_vae(**usual | arguments)
    assert not (tmp_path / "run").exists()


def test_numbers_of_numpy_are_those_of_python(chain: Path, tmp_path: Path) -> None:
    usual: dict[str, Any] = {"data": chain / "data" / f"{SLUG}.zarr", "run": tmp_path, "batch": 8}
    wm.train_vae(TINY, steps=2, latent=4, learning_rate=1e-3, seed=1, **usual)
    numbers = {"steps": np.int64(2), "latent": np.uint8(4), "learning_rate": np.float64(1e-3), "seed": np.int32(1)}
    again = wm.train_vae(TINY, disk_budget=np.int64(10**9), **usual | numbers)  # type: ignore[arg-type]
    assert again.status == "up to date"


def test_a_number_of_processes_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageProblem, match="workers is 1001; expected at most 1000 processes"):
        wm.Runtime(workers=1001)
    with pytest.raises(UsageProblem, match="workers is -1; expected a number of processes, 0 for this one alone"):
        wm.Runtime(workers=-1)


def test_the_sentences_of_a_table_hang_and_its_columns_stay() -> None:
    def wrap(text: str) -> str:
        indent = " " * (2 + len(text) - len(text.lstrip()))
        return textwrap.fill(text.lstrip(), 20, initial_indent=indent, subsequent_indent=indent)

    table = "  of the next z: M 0.42, linear 0.52\n  a column  another column\n  short"
    result = Result("train-mdnrnn", "up to date", Path("m"), Path(), "", {}, "", 0.0, table=table)
    assert result.text(wrap).splitlines() == [
        "m: up to date", "  of the next z: M", "    0.42, linear", "    0.52", "  a column  another column", "  short",
    ]  # fmt: skip
    assert result.text() == f"m: up to date\n{table}"


@pytest.mark.slow
def test_an_environment_that_the_program_alone_has_registered_needs_a_module_for_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gym.registry, "Here-v0", replace(gym.spec("CartPole-v1"), id="Here-v0"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageProblem, match=r"^Here-v0 is registered in this process alone, .* give module:Here-v0, or"):
        wm.collect("Here-v0", episodes=2, size=32, runtime=wm.Runtime(workers=1))


def test_calls_from_threads_take_turns(chain: Path, tmp_path: Path) -> None:
    """Initial weights come from torch's generator, and a process keeps the environments it plays."""
    data, turns = chain / "data" / f"{SLUG}.zarr", list[int]()
    both_began = threading.Barrier(2)

    def call(number: int) -> None:
        both_began.wait()
        runtime = wm.Runtime(stop_requested=lambda: bool(turns.append(number)))
        wm.train_vae(TINY, data=data, run=tmp_path / str(number), runtime=runtime, steps=20, batch=16, latent=4)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(call, range(2)))
    assert len([number for number, _ in itertools.groupby(turns)]) == 2
