"""Files of a run whose values somebody has changed, with checksums that agree: one sentence, and never a traceback."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SLUG
from wm.artifacts import durable, manifest
from wm.artifacts.chained_log import chain
from wm.errors import BadData, UsageProblem
from wm.evolution.stopping import LOG, read_log
from wm.pretrained import load_controller, load_mdnrnn, load_vae
from wm.settings.sources import read_tables
from wm.telemetry import metrics_log
from wm.training import weights

LOADERS = {"vae": load_vae, "mdnrnn": load_mdnrnn, "controller": load_controller}


def seal(folder: Path, **changes: Any) -> None:
    """Make the manifest agree with the files, and change it."""
    body = json.loads((folder / manifest.NAME).read_text()) | changes
    files = [name for name in body.pop("files", {}) if (folder / name).is_file()]
    body.pop("sha256")
    manifest.write(folder, body, files)


@pytest.fixture
def run(chain: Path, tmp_path: Path) -> Path:
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("kind", LOADERS)
def test_every_value_of_model_json_is_checked(run: Path, kind: str) -> None:
    file = run / kind / "model.json"
    value = json.loads(file.read_text())
    bad_values: tuple[Any, ...] = ("<b>", [[]], {"a": {}}, True, -1, 1e300)
    # Any number can be the weight of the loss of ends.
    changes = [{name: bad} for name in value for bad in bad_values[: 4 if name == "end_weight" else None]]
    for changed in [*(value | change for change in changes), *({n: value[n] for n in value if n != k} for k in value)]:
        durable.write_json(file, changed)
        seal(run / kind)
        if changed == value:
            continue
        with pytest.raises(BadData, match=r"model\.json|weights\.safetensors"):
            LOADERS[kind](run / kind, "wm train")


@pytest.mark.parametrize("data", [b"", b"[]", b"[" * 100_000, b"\xff", b'{"latent": NaN}'])
def test_a_model_json_of_other_contents_is_one_sentence(run: Path, data: bytes) -> None:
    (run / "vae" / "model.json").write_bytes(data)
    seal(run / "vae")
    with pytest.raises(BadData, match=r"vae/model\.json"):
        load_vae(run / "vae", "wm train-vae")


@pytest.mark.parametrize("kind", LOADERS)
def test_weights_that_are_not_finite_are_refused_by_every_loader(run: Path, kind: str) -> None:
    file = run / kind / weights.WEIGHTS
    tensors = weights.load_tensors(file.read_bytes(), "w")
    name = "mean" if kind == "controller" else next(name for name in tensors if name.endswith("weight"))
    tensors[name].view(-1)[0] = float("nan")
    weights.save(file, tensors)
    seal(run / kind)
    with pytest.raises(BadData, match=rf"weights\.safetensors: {name} has the value nan"):
        LOADERS[kind](run / kind, "wm train")


@pytest.mark.parametrize(
    "change", [{"recipe": 3}, {"recipe": {}}, {"metrics": []}, {"fingerprint": 1}, {"provenance": "x"}, {"kind": 7}]
)
def test_a_manifest_with_other_types_is_refused(run: Path, change: dict[str, Any]) -> None:
    seal(run / "vae", **change)
    with pytest.raises(BadData, match=r"manifest\.json: (recipe|metrics|fingerprint|provenance|kind)"):
        load_vae(run / "vae", "wm train-vae")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"generation": "1"}', "in is missing"),
        ("[]", "the whole is a list"),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"generation": 1, "in": "real", "returns": [], "env_steps": 1, "seconds": 1.0, "candidates": "a"}',
            "returns",
        ),
        ('{"generation": 1, "in": "real", "returns": [1.0], "env_steps": 1, "seconds": 1.0}', "candidates"),
    ],
)
def test_a_damaged_line_of_a_log_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    good = {"generation": 0, "in": "none", "returns": [], "env_steps": 0, "seconds": 0.5, "validation": [1.0]}
    first = chain("", good)
    second = chain(first.digest, json.loads(line)).data if line.startswith("{") else line.encode() + b"\n"
    (tmp_path / LOG).write_bytes(first.data + second)
    with pytest.raises(BadData, match=rf"{LOG}, line 2.*{sentence}"):
        read_log(tmp_path)


def test_a_damaged_line_of_metrics_is_named_and_dropped_by_the_writer(tmp_path: Path) -> None:
    first = chain("", {"step": 1, "loss": float("nan")}).data
    (tmp_path / metrics_log.NAME).write_bytes(first + b'\x00\x00\xff\n{"step": 3}\n')
    with pytest.raises(BadData, match=r"metrics\.jsonl, line 2 is not JSON"):
        metrics_log.read(tmp_path)
    metrics_log.MetricsLog(tmp_path, 5).close()
    assert [line["step"] for line in metrics_log.read(tmp_path)] == [1]


@pytest.mark.parametrize(
    "text", [b"a = " + b"[" * 50_000, b"\xff", b"seed = " + b"9" * 5000, b"seed = 0x" + b"f" * 5000]
)
def test_a_config_file_that_is_none_is_one_sentence(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "c.toml").write_bytes(text)
    with pytest.raises(UsageProblem, match=r"c\.toml"):
        read_tables(tmp_path / "c.toml")


def test_a_config_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(b"\xef\xbb\xbfseed = 3\n")
    assert read_tables(tmp_path / "c.toml") == {"seed": 3}
