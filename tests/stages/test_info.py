import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import METRICS, PROVENANCE, RECIPE, SLUG, make_episode
from tests.stages.conftest import Output
from wm.artifacts import manifest
from wm.episodes.archive import record
from wm.episodes.writer import Writer, create


def test_info_of_an_artifact_has_its_settings_and_provenance(
    chain: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(chain)
    monkeypatch.setenv("COLUMNS", "80")
    text = output("info", f"runs/{SLUG}/vae")
    assert max(map(len, text.splitlines())) <= 80
    assert "setting latent" in text
    assert "provenance command" in text
    assert "calibration (" in (text := output("info", f"runs/{SLUG}/mdnrnn"))
    assert "{" not in text
    body = json.loads(output("info", f"runs/{SLUG}/vae", "--json"))
    assert body["recipe"]["settings"]["latent"] == 4


def test_a_manifest_says_nothing_else(tmp_path: Path, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = {"settings": {"network": "x", "latent": 4}, "inputs": {}}
    body = {
        "kind": "vae",
        "fingerprint": manifest.sha256_json(recipe),
        "metrics": METRICS["vae"],
        "provenance": PROVENANCE,
        "recipe": recipe,
    }
    Path("vae").mkdir()
    for name, value in {"returns": 1, "bytes": "x", "path": "/etc/passwd"}.items():
        manifest.write(Path("vae"), {**body, name: value})
        assert f"manifest.json: {name} is unknown; expected one of kind" in output("info", "vae", code=65)
    manifest.write(Path("vae"), body)
    text = output("info", "vae")
    assert text.startswith("vae\n")
    assert "metric validation_error" in text
    found = json.loads(output("info", "vae", "--json"))
    assert (found["path"], found["bytes"]) == ("vae", Path("vae/manifest.json").stat().st_size)


def test_info_of_a_dataset_counts_what_is_there(workspace: Path, output: Output) -> None:
    found = json.loads(output("info", "data/d.zarr", "--json"))
    returns = [make_episode(k, rows=10 + k).rewards.sum() for k in range(20)]
    assert (found["episodes"], found["steps"]) == (20, sum(9 + k for k in range(20)))
    assert found["mean_return"] == pytest.approx(np.mean(returns), abs=1e-4)
    assert sum(found["returns"]["counts"]) == 20
    size = sum(p.stat().st_size for p in (workspace / "data" / "d.zarr").glob("part-*/**/*") if p.is_file())
    assert found["bytes"] == size
    assert found["bytes_per_frame"] == pytest.approx(size / found["frames"], abs=0.1)
    assert "returns" in output("info", "data/d.zarr")
    assert "is no artifact itself; give one in it, such as data/d.zarr" in output("info", "data", code=66)
    assert "nowhere does not exist" in output("info", "nowhere", code=66)
    (workspace / "empty").mkdir()
    assert "is neither a dataset" in output("info", "empty", code=66)


def _with_returns(path: Path, returns: list[float]) -> None:
    with Writer(create(path, RECIPE)) as writer:
        for index, value in enumerate(returns):
            rewards = np.append(np.full(19, value / 19), 0).astype(np.float32)
            writer.add(replace(make_episode(index), rewards=rewards).pack())


@pytest.mark.parametrize(("value", "edge"), [(1.9e16, "1.9e+16"), (-38, "-38.0")])
def test_info_of_a_dataset_whose_returns_no_bins_can_divide_has_one(
    value: float, edge: str, tmp_path: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _with_returns(tmp_path / "d.zarr", [value] * 3)
    assert output("info", "d.zarr").splitlines()[-1].split()[:3] == [edge, "to", edge]
    assert json.loads(output("info", "d.zarr", "--json"))["returns"]["counts"] == [3]


def test_info_of_a_dataset_tells_narrow_bins_of_returns_apart(
    tmp_path: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _with_returns(tmp_path / "d.zarr", [-19.0, -18.95, -18.9])
    bins = output("info", "d.zarr").splitlines()[-12:]
    assert all(line.split()[0] != line.split()[2] for line in bins)


def test_info_of_a_dataset_tells_how_many_episodes_it_had_after_each_command(
    tmp_path: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Writer(create(tmp_path / "d.zarr", RECIPE)) as writer:
        for index, command in enumerate(("first", "second")):
            writer.add(make_episode(index).pack())
            record(writer.path, {"episodes": writer.next, "finished": "today", "command": command})
    lines = output("info", "d.zarr").splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if " in all by " in line] == [
        "1 episode in all by today, `first`",
        "2 episodes in all by today, `second`",
    ]


def test_info_of_a_masked_dataset_says_what_frames_hide(
    tmp_path: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output("collect", "--env", "Catch", "--episodes", "2", "--set", "mask=12-88", "--data", "masked.zarr")
    assert "16 of 64x64x3, mask 12-88" in output("info", "masked.zarr")
    assert json.loads(output("info", "masked.zarr", "--json"))["mask"] == "12-88"


def test_a_part_is_described_by_its_dataset(workspace: Path, output: Output) -> None:
    part = next(Path("data/d.zarr").glob("part-*"))
    assert f"{part} is a part of the dataset data/d.zarr; give that." in output("info", str(part), code=66)
