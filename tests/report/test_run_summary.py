from pathlib import Path
from typing import Any

from tests.conftest import METRICS, PROVENANCE
from wm.artifacts import durable, manifest
from wm.artifacts.runs import Artifact
from wm.report.document import Paragraph, Table
from wm.report.inventory import find
from wm.report.run_chapter import chapter
from wm.report.run_summary import RunSummary, overview
from wm.report.sections import vae_section


def write_vae(run: Path, env: dict[str, Any]) -> None:
    """The artifact of a V without weights."""
    model = {"channels": 3, "env": env, "latent": 4, "network": "small", "size": 64}
    durable.write_json(durable.make_folder(run / "vae") / "model.json", model)
    recipe = {"settings": {"network": "small", "latent": 4}, "inputs": {}}
    body = {"kind": "vae", "metrics": METRICS["vae"], "provenance": PROVENANCE, "recipe": recipe}
    manifest.write(run / "vae", body | {"fingerprint": manifest.sha256_json(recipe)})


def test_a_model_of_an_impossible_environment_is_named_and_left_out(tmp_path: Path) -> None:
    write_vae(tmp_path, {"name": "Pong", "mask": "0-0"})
    summary = RunSummary.of(tmp_path)
    assert summary.artifacts == {}
    assert "model.json: env.mask is '0-0'" in summary.damaged[0]
    assert list(chapter(summary))
    assert overview([summary]).rows


def test_a_run_of_an_environment_that_is_unknown_here_is_listed_and_reported(tmp_path: Path) -> None:
    write_vae(tmp_path, {"name": "OfAnotherMachine-v0"})
    score = {"mean": 1.0, "ci95": 0.5, "episodes": 9}
    metrics = score | {"preview": True, "protocol": "", "agent": "vmc", "env_steps": 1, "random": score}
    recipe = {"settings": {}, "inputs": {"controller": "1"}}
    body = {"kind": "evaluation", "metrics": metrics, "provenance": PROVENANCE, "recipe": recipe}
    folder = durable.make_folder(tmp_path / "evaluation" / "controller")
    manifest.write(folder, body | {"fingerprint": manifest.sha256_json(recipe)})
    summary = RunSummary.of(tmp_path)
    assert not summary.damaged
    assert list(chapter(summary))
    assert {entry["kind"] for entry in find([tmp_path])} == {"vae", "evaluation"}


def test_figures_of_another_agent_than_the_run_has_are_told(tmp_path: Path) -> None:
    def older(controller: str) -> list[str]:
        inputs = {"controller": "1", "source of x": "5"}
        body = {"provenance": PROVENANCE, "metrics": {}}
        artifacts = {
            "controller": Artifact(
                tmp_path / "controller", body | {"fingerprint": controller, "recipe": {"settings": {}, "inputs": {}}}
            ),
            **{
                name: Artifact(
                    tmp_path / name, body | {"fingerprint": "3", "recipe": {"settings": {}, "inputs": inputs}}
                )
                for name in ("evaluation/controller-no-sticky", "evaluation/other")
            },
        }
        blocks = chapter(RunSummary(tmp_path, artifacts, {}, [], None, []))
        return [block.text for block in blocks if isinstance(block, Paragraph) and block.strong == "Older"]

    assert older("1") == []
    (text,) = older("2")
    assert text.startswith("evaluation/controller-no-sticky of another controller than the run has now")


def test_the_time_of_a_later_round_has_the_encoding_of_every_round(tmp_path: Path) -> None:
    """Of the latents in its run, those of the first round alone are shown; `--keep data` removes all of them."""

    def artifact(name: str, seconds: float, **metrics: float) -> Artifact:
        return Artifact(tmp_path / name, {"provenance": {"wall_seconds": seconds}, "metrics": metrics})

    made = {"mdnrnn": artifact("mdnrnn", 100.0, encoding_seconds=7.0, collecting_seconds=3.0)}
    for latents in ({}, {"latents": artifact("latents", 5.0)}):
        summary = RunSummary(tmp_path, {**made, **latents}, {}, [], None, [])
        assert (summary.encoding_seconds, summary.wall_seconds("controller")) == (7, 110)
    older = {"mdnrnn": artifact("mdnrnn", 100.0), "latents": artifact("latents", 5.0)}
    assert RunSummary(tmp_path, older, {}, [], None, []).wall_seconds("controller") == 105


def controller(tmp_path: Path, **metrics: Any) -> list[str]:
    """The paragraphs about a C by policy gradient."""
    figures = METRICS["controller"] | {"head": "categorical", "validation_return": 9.0} | metrics
    recipe = {"settings": {"algo": "ppo"}, "inputs": {}}
    body = {"metrics": figures, "recipe": recipe, "provenance": PROVENANCE, "fingerprint": "1", "files": {}}
    line = {"generation": 1, "in": "real", "policy": "", "returns": [], "env_steps": 3, "validation": [4.0, 8.0]}
    made = {"controller": Artifact(durable.make_folder(tmp_path / "controller"), body)}
    blocks = chapter(RunSummary(tmp_path, made, {}, [line], None, []))
    return [block.text for block in blocks if isinstance(block, Paragraph) and "policy gradient" in block.text]


def test_a_policy_that_acts_otherwise_than_in_its_validations_says_so(tmp_path: Path) -> None:
    (text,) = controller(tmp_path, sampled=True, validation_return_likeliest=6.0)
    assert text.endswith("is 9.0, acting by samples; likeliest, as in every validation of the chart, it is 6.0.")
    (text,) = controller(tmp_path, sampled=False, validation_return_likeliest=9.0)
    assert text.endswith("is 9.0.")


def test_a_probe_without_all_figures_is_shown(tmp_path: Path) -> None:
    """Its schema has only R2 among what must be there."""
    metrics = METRICS["vae"] | {"probe": {"x": {"r2": 0.5}, "y": {"r2": -0.004, "rows": 2000}}}
    artifact = Artifact(
        tmp_path, {"metrics": metrics, "files": {}, "recipe": {"settings": {"network": "x", "latent": 4}}}
    )
    (table,) = [block for block in vae_section("run", artifact, []) if isinstance(block, Table)]
    assert table.rows == [["x", "0.50", "–", "–", "–"], ["y", "0.00", "–", "–", "2,000"]]
