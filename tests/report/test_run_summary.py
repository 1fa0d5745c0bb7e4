from pathlib import Path

from tests.conftest import METRICS, PROVENANCE
from wm.artifacts import durable, manifest
from wm.report.run_summary import RunSummary, overview


def test_a_model_of_an_impossible_environment_is_named_and_left_out(tmp_path: Path) -> None:
    env = {"name": "Pong", "mask": "0-0"}
    model = {"channels": 3, "env": env, "latent": 4, "network": "small", "size": 64}
    durable.write_json(durable.make_folder(tmp_path / "vae") / "model.json", model)
    recipe = {"settings": {"network": "small", "latent": 4}, "inputs": {}}
    body = {"kind": "vae", "fingerprint": "0", "metrics": METRICS["vae"], "provenance": PROVENANCE, "recipe": recipe}
    manifest.write(tmp_path / "vae", body)
    summary = RunSummary.of(tmp_path)
    assert summary.artifacts == {}
    assert "model.json: env.mask is '0-0'" in summary.damaged[0]
    assert list(summary.blocks())
    assert overview([summary]).rows
