"""`wm ls`, on a chain that was really run."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import PROVENANCE, SLUG, write_dataset
from tests.stages.conftest import Output
from wm.artifacts import durable, manifest


def test_datasets_and_artifacts_are_listed_in_the_order_of_the_stages(
    chain: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(chain)
    entries = json.loads(output("ls", "--json"))["entries"]
    names = [entry["path"].removeprefix(f"runs/{SLUG}/") for entry in entries]
    stages = ["vae", "latents", "mdnrnn", "controller", "dream", "evaluation/controller", "evaluation/random"]
    assert names == [f"data/{SLUG}.zarr", *stages]
    assert [entry["kind"] for entry in entries] == ["episodes", *stages[:5], "evaluation", "evaluation"]


def test_the_list_has_a_figure_and_a_date_and_fits_80_columns(
    chain: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(chain)
    monkeypatch.setenv("COLUMNS", "80")
    text = output("ls")
    assert max(map(len, text.splitlines())) <= 80
    for figure in ("(n=24)", "validation", "rank corr.", "±"):
        assert figure in text
    assert text.count("  20") >= 8  # dates
    assert len(text.partition(f"runs/{SLUG}\n")[2].splitlines()) == 7  # no artifact's line wraps


def test_unfinished_and_damaged_artifacts_are_listed_as_such(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "runs" / "X" / "vae.partial").mkdir(parents=True)
    (workspace / "runs" / "X" / "mdnrnn").mkdir()
    (workspace / "runs" / "X" / "mdnrnn" / "manifest.json").write_text("{}")
    entries = {Path(entry["path"]).name: entry for entry in json.loads(output("ls", "--json"))["entries"]}
    kinds = {name: entry["kind"] for name, entry in entries.items()}
    assert kinds == {"d.zarr": "episodes", "vae.partial": "unfinished", "mdnrnn": "damaged"}
    assert "is not a manifest" in entries["mdnrnn"]["problem"]


def test_what_ls_calls_damaged_is_named_by_verify(
    tmp_path: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body = {"kind": "vae", "fingerprint": "0", "metrics": {"rows": "x"}, "provenance": PROVENANCE}
    recipe = {"settings": {"network": "x", "latent": 4}, "inputs": {}}
    manifest.write(durable.make_folder(tmp_path / "runs" / "x" / "vae"), {**body, "recipe": recipe})
    entries = json.loads(output("ls", "runs", "--json"))["entries"]
    assert [(entry["kind"], entry["figure"]) for entry in entries] == [("damaged", "wm verify names it")]
    assert "runs/x/vae/manifest.json: metrics.validation_error is missing" in output("verify", "runs", code=65)


@pytest.mark.parametrize("damage", ["no manifest", "no part either", "dangling link", "a file", "a lost part"])
def test_a_dataset_that_cannot_be_opened_is_what_ls_and_verify_name_first(
    workspace: Path, output: Output, damage: str
) -> None:
    other = write_dataset(workspace / "data" / "a.zarr", 3)  # damaged, and yet it can be opened
    shard = other / "part-000000-000003" / "rewards" / "c.0"
    shard.write_bytes(bytes(shard.stat().st_size))
    path = write_dataset(workspace / "data" / "x.zarr", 3)
    if damage in ("no manifest", "no part either"):
        (path / "manifest.json").unlink()
    if damage == "no part either":
        shutil.rmtree(path / "part-000000-000003")
    elif damage == "a lost part":
        (path / "part-000000-000003").rename(path / "part-000001-000003")
    elif damage in ("dangling link", "a file"):
        shutil.rmtree(path)
        path.symlink_to(workspace / "nowhere") if damage == "dangling link" else path.write_bytes(b"?")
    error = output("ls", code=65)
    assert error.startswith("wm: data/x.zarr")
    assert "`wm verify data/x.zarr`" in error
    assert "first: data/x.zarr" in output("verify", "data", code=65)
    assert "data/x.zarr" in output("verify", "data/x.zarr", code=65)


def test_an_empty_folder_gets_the_first_command(tmp_path: Path, output: Output) -> None:
    assert "wm collect" in output("ls", str(tmp_path))


def test_a_file_is_no_folder_without_datasets(workspace: Path, output: Output) -> None:
    assert "zarr.json is a file; expected a folder, such as data" in output("ls", "data/d.zarr/zarr.json", code=64)
