import json
import shutil
from pathlib import Path

import pytest

from stages.session import Session
from tests.conftest import SLUG, TINY, arguments, run
from wm.artifacts import durable, manifest
from wm.errors import BadData, MissingInput, RecipeMismatch
from wm.pretrained import ControllerConfig, load_all, load_vae, memory_of


def test_v_m_and_c_are_loaded_frozen(chain: Path) -> None:
    vae, mdnrnn, controller = load_all(Session(TINY, run=chain / "runs" / SLUG))
    assert not any(p.requires_grad for model in (vae.model, mdnrnn.model) for p in model.parameters())
    assert not vae.model.training
    assert controller.parameters.shape == (controller.model.parameters,)


def test_a_controller_of_z_alone_with_hidden_units_comes_back_as_it_was(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    chosen = ("--set", "hidden=2", "--set", "hidden_gain=4.5", "--set", "sees=z", "--max-generations", "1")
    run(tmp_path, *arguments("train-controller", *chosen))
    vae, _, controller = load_all(Session(TINY, run=tmp_path / "runs" / SLUG))
    model = controller.model
    assert (model.inputs, model.hidden, model.gain) == (vae.model.latent, 2, 4.5)
    assert controller.form.memory == "none"


def test_damaged_weights_are_refused(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG / "vae", tmp_path / "vae")
    file = tmp_path / "vae" / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-10] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(BadData, match=r"weights.safetensors does not match its checksum"):
        load_vae(tmp_path / "vae", "wm train-vae")


def test_what_is_missing_names_its_command(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="run `wm train-vae --env Pong` first"):
        load_all(Session("Pong", run=tmp_path))


def test_a_controller_for_other_actions_is_refused(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "run")
    folder = tmp_path / "run" / "controller"
    shape = json.loads((folder / "model.json").read_text())
    shape |= {
        "action_space": {"count": 0, "low": [-1.0] * 3, "high": [1.0] * 3},
        "form": shape["form"] | {"head": "tanh"},
    }
    durable.write_json(folder / "model.json", shape)
    body = json.loads((folder / manifest.NAME).read_text())
    files = body.pop("files")
    body.pop("sha256")
    manifest.write(folder, body, list(files))
    with pytest.raises(RecipeMismatch, match=r"acts with actions of 3 dimensions but .* knows 3 discrete actions"):
        load_all(Session(TINY, run=tmp_path / "run"))


def test_an_untrained_memory_is_the_same_for_a_seed_and_none_is_none(chain: Path) -> None:
    _, mdnrnn, _ = load_all(Session(TINY, run=chain / "runs" / SLUG))
    one, two, other = (memory_of(mdnrnn, ControllerConfig("argmax", 0, "untrained", seed)) for seed in (1, 1, 2))
    assert one is not None
    assert two is not None
    assert other is not None
    assert (one.heads.weight == two.heads.weight).all()
    assert not (one.heads.weight == other.heads.weight).all()
    assert memory_of(mdnrnn, ControllerConfig("argmax", 0, "none")) is None
    assert memory_of(mdnrnn, ControllerConfig("argmax")) is mdnrnn.model
