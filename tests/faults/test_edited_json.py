"""Files of a run whose values somebody has changed, with checksums that agree: one sentence, and never a traceback."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from stages import cli
from stages.curriculum.outcome import SCHEMA
from stages.curriculum.parallel import LEADER, read_share
from tests.conftest import SLUG, TINY, outcome, write_dataset
from wm.artifacts import durable, json_reader, locks, manifest, runs, schemas
from wm.artifacts.chained_log import chain
from wm.episodes.archive import read_provenance
from wm.episodes.dataset import Dataset
from wm.episodes.latents import read_latents
from wm.errors import BadData, Locked, UsageProblem
from wm.evolution.search_log import LOG, read_log
from wm.pretrained import load_controller, load_mdnrnn, load_vae
from wm.settings.sources import read_tables
from wm.telemetry import heap_snapshot, metrics_log
from wm.training import weights

LOADERS = {"vae": load_vae, "mdnrnn": load_mdnrnn, "controller": load_controller}


def seal(folder: Path, **changes: Any) -> None:
    """Make the manifest agree with the files, and change it; an artifact's fingerprint follows its recipe."""
    body = json.loads((folder / manifest.NAME).read_text()) | changes
    if "fingerprint" in body and "fingerprint" not in changes:
        body["fingerprint"] = manifest.sha256_json(body["recipe"])
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
    needed = value.keys() - {"network", "units"} if kind == "mdnrnn" else value.keys()  # the others have defaults
    for changed in [*(value | change for change in changes), *({n: value[n] for n in value if n != k} for k in needed)]:
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
    file.write_bytes(weights.to_bytes(tensors))
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


@pytest.mark.parametrize(("name", "value"), [("mean", 999.0), ("ci95", 0.001), ("episodes", 1000)])
def test_a_score_that_its_returns_do_not_give_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, value: float
) -> None:
    folder = run / "evaluation" / "controller"
    metrics = json.loads((folder / manifest.NAME).read_text())["metrics"]
    seal(folder, metrics=metrics | {name: value})
    assert cli.run(["verify", str(folder)]) == 65
    assert f"metrics.{name} is {value:g}; expected {metrics[name]:g}, as of its returns" in capsys.readouterr().err


def test_an_interval_that_is_not_of_its_returns_is_refused() -> None:
    metrics = {"mean": 2.0, "ci95": 0.1, "episodes": 2, "returns": [1.5, 2.5], "preview": True, "protocol": "x"}
    with pytest.raises(json_reader.Mismatch, match=r"ci95 is 0\.1; expected 6\.3531, as of its returns"):
        schemas._evaluation(metrics | {"agent": "random"}, "")


def test_a_fingerprint_that_is_not_the_recipe_s_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of somebody else, whose V was trained otherwise than it says."""
    body = json.loads((run / "vae" / manifest.NAME).read_text())
    recipe = body["recipe"] | {"settings": body["recipe"]["settings"] | {"seed": 99}}
    seal(run / "vae", recipe=recipe, fingerprint=body["fingerprint"])
    with pytest.raises(BadData, match=rf"vae/manifest\.json: fingerprint is '{body['fingerprint'][:8]}'; expected '"):
        load_vae(run / "vae", "wm train-vae")
    assert cli.run(["verify", str(run / "vae")]) == 65
    assert "that of its recipe, so restore it or create the vae again" in capsys.readouterr().err


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
    "text",
    [b"a = " + b"[" * 50_000, b"a." * 3000 + b"a = 1", b"\xff", b"seed = " + b"9" * 5000, b"seed = 0x" + b"f" * 5000],
)
def test_a_config_file_that_is_none_is_one_sentence(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "c.toml").write_bytes(text)
    with pytest.raises(UsageProblem, match=r"c\.toml"):
        read_tables(tmp_path / "c.toml")


def test_a_config_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(b"\xef\xbb\xbfseed = 3\n")
    assert read_tables(tmp_path / "c.toml") == {"seed": 3}


@pytest.mark.parametrize("value", ["[1]", "[[1]]", "[{a=1}]", "2024-01-01", "inf", "9223372036854775807", '"\\u0000"'])
@pytest.mark.parametrize("name", ["seed", "run", "data", "workers", "worker_timeout", "disk_budget", "preset"])
def test_a_common_option_of_a_config_file_may_have_any_type(tmp_path: Path, name: str, value: str) -> None:
    (tmp_path / "c.toml").write_text(f"{name} = {value}\n")
    done = outcome(tmp_path, "train-vae", "--env", TINY, "--config", "c.toml", "--print-config")
    assert done.returncode in (0, 64)
    assert done.stderr.count("\n") == (done.returncode != 0)


def test_several_datasets_of_a_config_file_are_those_of_the_option(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('data = ["a.zarr", "b.zarr"]\nseed = 3\n')
    shown = json.loads(
        outcome(tmp_path, "train-vae", "--env", TINY, "--config", "c.toml", "--print-config", "--json").stdout
    )
    assert shown["data"]["value"] == ["a.zarr", "b.zarr"]
    assert shown["seed"]["value"] == 3


@pytest.mark.parametrize("text", ["", "[]", '{"pid": "x", "host": 3}', '{"pid": 1}', "[" * 5000])
def test_whoever_holds_a_lock_is_named_or_another_process(tmp_path: Path, text: str) -> None:
    with locks.exclusive(tmp_path / "vae"):
        (tmp_path / ".vae.owner").write_text(text)
        with pytest.raises(Locked, match="is being written by another process"), locks.exclusive(tmp_path / "vae"):
            pass


@pytest.mark.parametrize("alive", [[], {"a": 3}, {"a": [1, "x"]}, {"a": [1]}, None])
def test_a_damaged_snapshot_of_memory_is_named(tmp_path: Path, alive: Any) -> None:
    for step in (1, 2):
        snapshot = manifest.sealed({"step": step, "alive": alive})
        (tmp_path / f"memory-0000000{step}.json").write_bytes(snapshot)
    with pytest.raises(BadData, match=r"memory-00000001\.json: alive"):
        heap_snapshot.growth(tmp_path)


@pytest.mark.parametrize("text", ["3", "[]", '{"leader": 1}', "{"])
def test_a_share_of_a_curriculum_is_checked(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(LEADER, text)
    with pytest.raises(BadData, match="WM_LEADER"):
        read_share()


@pytest.mark.parametrize("value", [{}, {"dream": [1.0], "real": []}, {"dream": "x"}, {"rho": "high"}])
def test_a_damaged_comparison_of_a_dream_is_left_out_of_a_report_and_named(
    run: Path, value: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("vae", "latents", "mdnrnn", "controller", "evaluation"):  # whose charts take long to draw
        shutil.rmtree(run / name)
    file = run / "dream" / "fidelity.json"
    durable.write_json(file, json.loads(file.read_text()) | value if value else {})
    seal(run / "dream")
    assert cli.run(["report", str(run)]) == 0
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.match(rf"warning: left out: {file}: (dream|real|rho)", said)
    page = (run / "report.md").read_text()
    assert "The rank correlation of returns" in page
    assert "Every policy in the dream" not in page
    assert cli.run(["report", str(run), "--strict"]) == 65


def test_a_line_of_provenance_without_its_count_is_named(tmp_path: Path) -> None:
    (tmp_path / "provenance.jsonl").write_text('{"episodes": 3}\n{"episodes": "4"}\n')
    with pytest.raises(BadData, match=r"provenance\.jsonl, line 2: episodes"):
        read_provenance(tmp_path)


@pytest.mark.parametrize(
    ("where", "value", "sentence"),
    [
        (("env",), 3, "recipe.env is 3"),
        (("env", "observation"), "x", "recipe.env.observation is"),
        (("env", "size"), 10**9, "recipe.env.size is"),
        (("env", "colour"), 1, "recipe.env.colour is unknown"),
        (("action_space", "count"), -1, "recipe.action_space.count is -1"),
        (("action_space", "low"), [1.0], "recipe.action_space is of 3 actions with 1 lower"),
        (("labels",), "x", "recipe.labels is"),
        (("packages",), [1], "recipe.packages is"),
        (("sources",), [1], "recipe.sources is"),
    ],
)
def test_every_value_of_a_datasets_recipe_is_checked(
    tmp_path: Path, where: tuple[str, ...], value: Any, sentence: str
) -> None:
    path = write_dataset(tmp_path / "d.zarr", 1)
    body = json.loads((path / manifest.NAME).read_text())
    inner = body["recipe"]
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    seal(path, recipe=body["recipe"])
    with pytest.raises(BadData, match=sentence.replace(".", r"\.")):
        Dataset.open(path)


@pytest.mark.parametrize(
    "metrics",
    [{}, {"validation_error": "x"}, {"probe": {"y": {"r2": "1"}}}, {"rows": None}, {"collecting_seconds": None}],
)
def test_metrics_in_a_manifest_have_the_types_that_are_shown(run: Path, metrics: dict[str, Any]) -> None:
    body = json.loads((run / "vae" / manifest.NAME).read_text())["metrics"]
    seal(run / "vae", metrics=body | metrics if metrics else {})
    with pytest.raises(BadData, match=r"vae/manifest\.json: metrics\."):
        runs.load(run / "vae", "vae", "wm train-vae")


@pytest.mark.parametrize(
    ("kind", "change", "sentence"),
    [
        ("latents", {"episodes": None}, "inputs.episodes is missing"),
        ("mdnrnn", {"latents": None}, "inputs.latents is missing"),
        (
            "mdnrnn",
            {"latents/../../other/latents": "0"},
            "inputs is of 'latents/../../other/latents'; expected latents",
        ),
    ],
)
def test_inputs_in_a_manifest_are_those_that_are_opened(
    run: Path, kind: str, change: dict[str, str | None], sentence: str
) -> None:
    recipe = json.loads((run / kind / manifest.NAME).read_text())["recipe"]
    inputs = {name: text for name, text in (recipe["inputs"] | change).items() if text is not None}
    seal(run / kind, recipe=recipe | {"inputs": inputs})
    with pytest.raises(BadData, match=rf"{kind}/manifest\.json: recipe\.{re.escape(sentence)}"):
        runs.load(run / kind, kind, "wm train-mdnrnn")


@pytest.mark.parametrize("packages", [3, None, [[]], {"torch": 2}])
def test_packages_in_a_recipe_are_names_and_versions(run: Path, packages: Any) -> None:
    """Whatever compares recipes reads them: `wm compare`, and a stage whose artifact has another recipe."""
    recipe = manifest.read_json(run / "vae" / "manifest.json")["recipe"]
    seal(run / "vae", recipe=recipe | {"settings": recipe["settings"] | {"packages": packages}})
    with pytest.raises(BadData, match=r"recipe\.settings\.packages.* is .*; expected"):
        runs.read(run / "vae", "vae")


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "é" * 150, "x/" * 3000, 3])
def test_a_path_in_the_record_of_a_curriculum_can_be_one(path: Any) -> None:
    """The operating system raises ValueError or OSError for others."""
    result = {"stage": "train-vae", "artifact": path, "fingerprint": "", "metrics": {}, "summary": "",
              "wall_seconds": 1.0, "pictures": []}  # fmt: skip
    record = {"fingerprint": "", "outcome": "", "seconds": 1.0, "usage": {}}
    for wrong in (result, result | {"artifact": "runs/Pong/vae", "pictures": [path]}):
        with pytest.raises(json_reader.Mismatch, match="expected the path of a file or a folder"):
            SCHEMA(record | {"results": [wrong]}, "")
    SCHEMA(record | {"results": [result | {"artifact": "runs/Pong/vae"}]}, "")


@pytest.mark.parametrize("reading", ["null", "NaN", "1e300", '"1"', "true"])
def test_a_reading_of_memory_is_a_number(tmp_path: Path, reading: str) -> None:
    (tmp_path / metrics_log.NAME).write_text(f'{{"step": 1, "loss": NaN, "rss_anon_mb": {reading}}}\n')
    with pytest.raises(BadData, match=r"metrics\.jsonl, line 1: rss_anon_mb is"):
        metrics_log.read(tmp_path)


@pytest.mark.parametrize("key", ["name", "size", "gray"])
def test_a_datasets_recipe_without_a_key_of_its_frames_is_refused(tmp_path: Path, key: str) -> None:
    path = write_dataset(tmp_path / "d.zarr", 1)
    recipe = json.loads((path / manifest.NAME).read_text())["recipe"]
    del recipe["env"][key]
    seal(path, recipe=recipe)
    with pytest.raises(BadData, match=rf"recipe\.env\.{key} is missing"):
        Dataset.open(path)


def test_the_table_of_a_part_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "d.zarr", 1)
    (part,) = path.glob("part-*")
    (part / "zarr.json").write_bytes(b'"\xff\xfe"')
    seal(part)
    with pytest.raises(BadData, match=r"zarr\.json is not JSON"):
        Dataset.open(path)


@pytest.mark.parametrize("change", [{"episodes": 0}, {"rows": 0}, {"rows": 2**40}, {"latent": 2**40}])
def test_sizes_of_latents_that_cannot_be_are_refused(run: Path, change: dict[str, int]) -> None:
    file = run / "latents" / "latents.zarr" / "zarr.json"
    body = json.loads(file.read_text())
    file.write_text(json.dumps(body | {"attributes": body["attributes"] | change}))
    seal(run / "latents")
    with pytest.raises(BadData, match=rf"zarr\.json: attributes\.{next(iter(change))}"):
        read_latents(run / "latents")
