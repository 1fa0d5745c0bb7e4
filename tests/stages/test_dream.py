import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.dream import dream
from stages.session import Session
from tests.conftest import IN_PROCESS, SLUG, TINY, arguments, outcome, run
from tests.sharing.conftest import reseal
from wm.envs.code import EnvCode
from wm.envs.registry import EnvConfig
from wm.errors import BadData, UsageProblem
from wm.evaluation.fidelity_metrics import format_fidelity
from wm.pipeline.dream_inputs import dream_run, open_inputs
from wm.report import dream_pictures
from wm.settings import DreamSettings
from wm.training import weights


@pytest.fixture
def uncontrolled(chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A run with V and M, and without C."""
    monkeypatch.setattr(Session, "runtime", IN_PROCESS)
    monkeypatch.setattr(dream_pictures, "CONTEXT", 4)
    for name in ("vae", "latents", "mdnrnn"):
        shutil.copytree(chain / "runs" / SLUG / name, tmp_path / name)
    return Session(TINY, data=(chain / "data" / f"{SLUG}.zarr",), run=tmp_path)


@pytest.mark.slow
def test_without_a_controller_random_policies_dream(uncontrolled: Session) -> None:
    result = dream(uncontrolled, DreamSettings(dreams=4, max_steps=10))
    assert result.metrics["agent"] == "random linear policies"
    assert 0 < result.metrics["dream_length"] <= 10
    assert "rank correlation of returns" in result.table
    table = format_fidelity(result.metrics)
    assert result.table.startswith(table)
    assert max(map(len, table.splitlines())) <= 80


def test_the_dream_of_another_controller_has_a_name_of_its_own(chain: Path) -> None:
    session = Session(TINY, data=(chain / "data" / f"{SLUG}.zarr",), run=chain / "runs" / SLUG)
    inputs = open_inputs(session, DreamSettings())
    for agent, folder in (("controller", "dream"), ("mine", "dream-mine"), ("controller-2", "dream-controller-2")):
        assert dream_run(session, DreamSettings(agent=agent), inputs).folder.name == folder


@pytest.mark.slow
def test_dreams_are_no_longer_than_real_episodes_can_be(uncontrolled: Session) -> None:
    """gymnasium truncates those of the environment after 24 steps: longer dreams would be compared with other ones."""
    result = dream(uncontrolled, DreamSettings(dreams=2))
    lengths = json.loads((result.path / "fidelity.json").read_text())["dream_lengths"]
    assert max(lengths) <= 24
    assert json.loads((result.path / "manifest.json").read_text())["recipe"]["settings"]["max_steps"] == 24


@pytest.mark.parametrize(
    ("model", "value", "sentence"),
    [
        ("mdnrnn", 3e38, "has the value 3e\\+38; expected finite numbers of at most 1e\\+18"),
        ("vae", 1e17, "networks compute values that are not finite; expected numbers"),
    ],
)
def test_weights_that_are_too_large_to_compute_with_are_one_sentence(
    uncontrolled: Session, tmp_path: Path, model: str, value: float, sentence: str
) -> None:
    file = tmp_path / model / weights.WEIGHTS
    tensors = weights.load_tensors(file.read_bytes(), model)
    file.write_bytes(weights.to_bytes({name: torch.full_like(tensor, value) for name, tensor in tensors.items()}))
    reseal(tmp_path / model)
    with pytest.raises(BadData, match=sentence):
        dream(uncontrolled, DreamSettings(dreams=4, max_steps=10))


@pytest.mark.slow
def test_an_encoder_that_cannot_be_imported_costs_the_video_alone(
    chain_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in ("imageio", "imageio_ffmpeg"):
        (packages / f"{name}.py").write_text("raise ImportError('cannot import name descriptor')")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(packages))
    done = run(chain_copy, *arguments("dream", "--name", "without-video"))
    problem = "the import of imageio failed: cannot import name descriptor"
    assert f"warning: no MP4 video is written: {problem}; run `pip install" in done.stderr
    assert {path.suffix for path in (chain_copy / "runs" / SLUG / "without-video").glob("dream.*")} == {".gif", ".png"}


def test_an_environment_that_was_edited_after_the_training_is_told(
    chain_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise UsageProblem("enough")

    monkeypatch.setattr("stages.dream.measure_fidelity", stop)
    monkeypatch.setattr(EnvConfig, "code", EnvCode(sources={"source of tests.tiny": "0" * 16}))
    done = outcome(chain_copy, *arguments("dream"))
    assert f"runs/{SLUG}/controller was trained before tests.tiny was edited" in done.stderr
