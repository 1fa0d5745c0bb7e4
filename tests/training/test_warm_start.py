import json
import shlex
import shutil
from pathlib import Path

import pytest

from tests.conftest import SLUG, TINY, arguments, outcome, run
from wm.artifacts.manifest import NAME
from wm.errors import RecipeMismatch
from wm.models.mdnrnn.network import MdnRnn
from wm.training.warm_start import load_initial_weights


def test_weights_of_another_shape_are_refused_with_both_shapes(chain: Path) -> None:
    model = MdnRnn(4, 3, 8, 5, 10.0)
    with pytest.raises(RecipeMismatch, match=r"heads.weight is \(62, 16\), expected \(62, 8\)"):
        load_initial_weights(str(chain / "runs" / SLUG), "mdnrnn", TINY, model)


def test_a_source_without_v_is_told_with_a_command_that_can_be_pasted(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "data", tmp_path / "data")
    done = outcome(tmp_path, *arguments("train-vae", "--init-from", "runs/of mine"))
    assert done.returncode == 66
    command = " ".join(done.stderr.split("`")[1].split())
    assert command == f"wm train-vae --env {TINY} --run 'runs/of mine'"
    assert outcome(tmp_path, *shlex.split(command)[1:], "--dry-run").returncode == 0


def test_latents_of_the_source_run_are_copied(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    words = arguments("train-mdnrnn", "--run", "runs/again", "--init-from", f"runs/{SLUG}", "--steps", "20")
    log = run(tmp_path, *words).stderr
    assert f"vae: copied from runs/{SLUG}/vae" in log
    assert f"latents: copied from runs/{SLUG}/latents" in log
    assert "encode" not in log
    source, copy = (json.loads((tmp_path / "runs" / name / "latents" / NAME).read_text()) for name in (SLUG, "again"))
    assert source == copy


def test_without_init_from_the_training_starts_from_scratch_and_the_earlier_artifact_is_archived(
    chain: Path, tmp_path: Path
) -> None:
    shutil.copytree(chain / "data", tmp_path / "data")
    shutil.copytree(chain / "runs" / SLUG / "vae", tmp_path / "runs" / "source" / "vae")
    words = arguments("train-vae", "--run", "runs/again", "--steps", "10")
    run(tmp_path, *words, "--init-from", "runs/source")
    folder = tmp_path / "runs" / "again"
    initialized = fingerprint(folder / "vae")
    kept = outcome(tmp_path, *words, "--keep-current")
    assert kept.returncode == 78
    assert "created by another recipe (now without init_from) and --keep-current is given" in kept.stderr
    assert fingerprint(folder / "vae") == initialized
    assert "vae: now without init_from; " in (text := run(tmp_path, *words).stderr)
    assert "the artifact of the old recipe moves to the archive" in text
    assert fingerprint(folder / "vae") != initialized
    assert fingerprint(folder / "archive" / f"vae-{initialized[:8]}") == initialized
    restored = run(tmp_path, *words, "--init-from", "runs/source")
    assert "vae: now with init_from; " in restored.stderr
    assert fingerprint(folder / "vae") == initialized


def fingerprint(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["fingerprint"])


@pytest.mark.slow
def test_a_v_that_the_source_does_not_know_is_refused_and_the_sources_taken_on_demand(
    chain: Path, tmp_path: Path
) -> None:
    shutil.copytree(chain / "data", tmp_path / "data")
    shutil.copytree(chain / "runs", tmp_path / "runs")
    folder = tmp_path / "runs" / "again"
    words = ("--run", "runs/again")
    again = arguments("train-mdnrnn", *words, "--init-from", f"runs/{SLUG}", "--steps", "20")
    run(tmp_path, *arguments("train-vae", *words, "--steps", "10", "--seed", "7"))
    own = fingerprint(folder / "vae")
    refused = outcome(tmp_path, *again)
    assert refused.returncode == 78
    assert f"runs/again/vae is another V than runs/{SLUG}/vae, whose latents the M of --init-from" in refused.stderr
    assert outcome(tmp_path, *again, "--set", "source_vae=true", "--keep-current").returncode == 78
    assert fingerprint(folder / "vae") == own
    log = run(tmp_path, *again, "--set", "source_vae=true").stderr
    assert "vae: seed 7 -> 0" in log
    assert f"latents: copied from runs/{SLUG}/latents" in log
    assert fingerprint(folder / "vae") == fingerprint(tmp_path / "runs" / SLUG / "vae")
    assert fingerprint(folder / "archive" / f"vae-{own[:8]}") == own
    run(tmp_path, *arguments("train-vae", *words, "--steps", "10", "--init-from", f"runs/{SLUG}"))
    assert "runs/again/mdnrnn" in run(tmp_path, *again).stdout  # M of the source goes on with a V that began as its own
