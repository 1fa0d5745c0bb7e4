import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages import console
from tests.conftest import ROOT, TINY, run, write_dataset
from tests.stages.conftest import Output
from wm import extras
from wm.artifacts import durable, locks
from wm.episodes import schema


def test_an_export_replaces_nothing(workspace: Path, output: Output) -> None:
    output("export", "data/d.zarr", "--to", "npz")
    assert "exists; remove it" in output("export", "data/d.zarr", "--to", "npz", code=64)


def test_the_second_of_two_exports_is_refused_and_sweeps_nothing(workspace: Path, output: Output) -> None:
    target = workspace / "data" / "exports" / "d-npz"
    with locks.exclusive(target):
        durable.staging_path(target).mkdir()
        before = sorted(target.parent.iterdir())
        assert f"process {os.getpid()}" in output("export", "data/d.zarr", "--to", "npz", code=75)
        assert sorted(target.parent.iterdir()) == before
        output("clean", "data")
        assert sorted(target.parent.iterdir()) == before
    output("export", "data/d.zarr", "--to", "npz")
    assert sorted(path.name for path in target.parent.iterdir()) == [".d-npz.lock", "d-npz"]


def test_an_export_measures_what_frames_take_and_needs_about_that(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    write_dataset(workspace / "data" / "e.zarr", 9)  # of noise, 184 kB a part
    usage = shutil.disk_usage(workspace)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(total=20, free=400_000))
    text = output("export", "data/e.zarr", "--to", "npz", code=74)
    assert re.search(r"the other 6 of 9 episodes needs about 4\d\d\.\d kB at .* but only 400\.0 kB may be", text)
    assert not [path for path in (workspace / "data" / "exports").iterdir() if path.suffix != ".lock"]
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(total=20, free=500_000))
    output("export", "data/e.zarr", "--to", "npz")
    assert 500_000 < durable.folder_size(workspace / "data" / "exports" / "e-npz") < 600_000


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_temporary_folder(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    handlers = {number: signal.getsignal(number) for number in console.stop_signals()}
    monkeypatch.setattr("wm.episodes.export.write_npz", lambda *_: os.kill(os.getpid(), number))
    try:
        console.raise_on_signals()
        assert "stopped" in output("export", "data/d.zarr", "--to", "npz", code=code)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert [path.name for path in (workspace / "data" / "exports").iterdir()] == [".d-npz.lock"]


def test_a_missing_extra_gets_its_pip_line(workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "run `pip install -e '.[mp4]'`" in output("export", "data/d.zarr", "--to", "mp4", code=69)


def test_an_absurd_range_and_a_missing_dataset_are_one_sentence(workspace: Path, output: Output) -> None:
    words = ("--to", "npz", "--episodes", "0-99999999999999999999")
    assert "up to 100,000 episodes" in output("export", "data/d.zarr", *words, code=64)
    assert "does not exist" in output("export", "data/nowhere.zarr", "--to", "npz", code=66)


def test_onnx_is_for_runs_and_its_options_for_what_they_mean(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "require", lambda *_: None)
    assert "has no vae to export" in output("export", "data/d.zarr", "--to", "onnx", code=66)
    assert "leave it out" in output("export", "runs/x", "--to", "onnx", "--episodes", "0", code=64)
    assert "leave it out" in output("export", "data/d.zarr", "--to", "npz", "--agent", "c", code=64)
    assert not (workspace / "data" / "exports").exists()


@pytest.mark.slow
@pytest.mark.extra("onnx")
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_a_run_is_exported_with_the_signature_that_the_documents_name(chain_copy: Path) -> None:
    import onnxruntime

    run_folder = next((chain_copy / "runs").glob("*-v0"))
    folder = chain_copy / run(chain_copy, "export", str(run_folder), "--to", "onnx").stdout.strip()
    sessions = {path.stem: onnxruntime.InferenceSession(path.read_bytes()) for path in folder.glob("*.onnx")}
    names = {
        name: ([value.name for value in session.get_inputs()], [value.name for value in session.get_outputs()])
        for name, session in sessions.items()
    }
    assert names == {
        "encoder": (["frames"], ["z", "logvar"]),
        "decoder": (["z"], ["images"]),
        "mdnrnn": (
            ["observation", "action", "state"],
            ["next_state", "observation_prediction", "reward", "continuation"],
        ),
        "mixture": (["observation", "state"], ["logits", "means", "log_sigmas"]),
        "controller": (["z", "h"], ["action", "outputs"]),
    }
    facts = sessions["mdnrnn"].get_modelmeta().custom_metadata_map
    assert json.loads(facts["action_space"]) == {"count": 3, "low": [], "high": []}
    assert facts["environment"] == TINY
    alone = chain_copy / run(chain_copy, "export", str(run_folder / "vae"), "--to", "onnx", "--out", "v").stdout.strip()
    assert sorted(path.name for path in alone.iterdir()) == ["decoder.onnx", "encoder.onnx"]


def _example() -> tuple[str, str]:
    """The how-to's code before an episode's first step, and that of a step."""
    code = (ROOT / "docs" / "how-to.md").read_text().split("## Run V, M and C without torch")[1].split("```")[1]
    before, _, step = code.removeprefix("python\n").partition("\n\nz, _ = ")
    return before, f"z, _ = {step}"


@pytest.mark.slow
@pytest.mark.extra("onnx")
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize("algo", [(), ("--algo", "ppo", "--max-env-steps", "400", "--set", "validate_steps=400")])
def test_the_example_of_the_how_to_acts_with_a_c_of_either_algorithm(chain_copy: Path, algo: tuple[str, ...]) -> None:
    run_folder = next((chain_copy / "runs").glob("*-v0"))
    if algo:
        run(chain_copy, "train-controller", "--env", TINY, *algo)
    folder = chain_copy / run(chain_copy, "export", str(run_folder), "--to", "onnx").stdout.strip()
    before, step = _example()
    values: dict[str, Any] = {}
    exec(before.replace("runs/exports/Pong-onnx", str(folder)), values)
    for number in range(3):
        values["frames"] = np.full((1, *values["v"].get_inputs()[0].shape[1:]), 40 * number, np.uint8)
        exec(step, values)
        assert 0 <= values["action"][0] < 3
    assert set(values["c_takes"]) == ({"z", "z_before"} if algo else {"z", "h"})
    assert np.abs(values["state"]).max() > 0
