import shutil
from pathlib import Path

import pytest

from stages.session import Session
from stages.trained import load_all, load_vae
from tests.conftest import SLUG, TINY
from wm.errors import BadData, MissingInput


def test_v_m_and_c_are_loaded_frozen(chain: Path) -> None:
    vae, mdnrnn, controller = load_all(Session(TINY, run=chain / "runs" / SLUG))
    assert not any(p.requires_grad for model in (vae.model, mdnrnn.model) for p in model.parameters())
    assert not vae.model.training
    assert controller.parameters.shape == (controller.model.parameters,)


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
