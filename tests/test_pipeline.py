"""The whole chain on a tiny world, through the real commands: it runs, it is up to date, it survives kills."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from tests.conftest import (
    ROOT,
    SLUG,
    STAGES,
    TINY,
    arguments,
    command,
    environment,
    outcome,
    run,
    small_config,
    still_running,
)
from tests.stages.test_train_dreamer import stop_after
from wm.artifacts import manifest
from wm.episodes.dataset import Dataset
from wm.pretrained import load_controller
from wm.report.dream_pictures import CONTEXT, FRAMES
from wm.training.checkpoint import Checkpoints


def digests(folder: Path, name: str) -> dict[str, str]:
    """Checksums of an artifact's files, or of a dataset's parts; logs and pictures of times are left out."""
    if name == "collect":
        parts = (folder / "data" / f"{SLUG}.zarr").glob("part-*")
        return {part.name: json.loads((part / manifest.NAME).read_text())["sha256"] for part in parts}
    artifact = {"train-vae": "vae", "train-mdnrnn": "mdnrnn", "train-controller": "controller"}[name]
    files = json.loads((folder / "runs" / SLUG / artifact / manifest.NAME).read_text())["files"]
    return {file: entry["sha256"] for file, entry in files.items() if file.endswith((".safetensors", "model.json"))}


def test_every_stage_leaves_an_artifact_with_valid_checksums(chain: Path) -> None:
    checked = json.loads(run(chain, "verify", ".", "--json").stdout)["checked"]
    paths = {artifact["path"]: artifact["files"] for artifact in checked}
    names = {Path(name).name for name in paths}
    assert {"vae", "latents", "mdnrnn", "controller", "dream", "random", f"{SLUG}.zarr"} <= names
    assert not list(chain.rglob("*.partial"))
    assert not [path for path in chain.rglob("*") if path.name.endswith((".tmp", ".doomed"))]


def test_the_second_run_does_nothing(chain: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in chain.rglob("*") if path.is_file()}
    for stage in STAGES:
        assert json.loads(run(chain, *arguments(stage, "--json")).stdout)["status"] == "up to date"
    after = {path: path.stat().st_mtime_ns for path in chain.rglob("*") if path.is_file()}
    assert {path for path in after if after[path] != before.get(path)} <= set(chain.rglob(".*"))


def test_pictures_are_pictures(chain: Path) -> None:
    names = ("vae/reconstructions.png", "vae/loss.png", "mdnrnn/loss.png", "controller/returns.png", "dream/dream.png")
    for name in names:
        with Image.open(chain / "runs" / SLUG / name) as picture:
            assert picture.width > 200, name


def test_the_animation_of_a_dream_has_a_frame_for_every_step_after_the_context(chain: Path) -> None:
    folder, dataset = chain / "runs" / SLUG / "dream", Dataset.open(chain / "data" / f"{SLUG}.zarr")
    episode = json.loads((folder / manifest.NAME).read_text())["metrics"]["episode"]
    rows = int(np.diff(dataset.ends, prepend=0)[episode])
    assert CONTEXT + 2 < rows < CONTEXT + FRAMES
    with Image.open(folder / "dream.gif") as movie:
        assert movie.n_frames == rows - CONTEXT  # type: ignore[attr-defined]


def test_the_score_has_an_interval_a_baseline_and_a_protocol(chain: Path) -> None:
    score = json.loads((chain / "runs" / SLUG / "evaluation" / "controller" / "score.json").read_text())
    assert score["episodes"] == len(score["returns"]) == 6
    assert score["preview"] is True
    assert score["ci95"] > 0
    assert score["random"]["episodes"] == 6
    assert "unmodified" in score["protocol"]
    assert score["env_steps"] > 100


def test_a_changed_setting_redoes_only_its_dependents_and_is_reported(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(chain, folder)
    done = run(folder, *arguments("train-vae", "--latent", "5"))
    assert "vae: latent 4 -> 5; latents, mdnrnn, controller, dream, evaluation depend on it" in done.stderr
    done = outcome(folder, *arguments("train-controller"))
    assert done.returncode == 78
    assert "was trained on another VAE" in done.stderr
    assert "run `wm train-mdnrnn --env tests.tiny:Tiny-v0`" in done.stderr
    assert "restored from the archive" in run(folder, *arguments("train-vae")).stderr
    for stage in STAGES:
        assert json.loads(run(folder, *arguments(stage, "--json")).stdout)["status"] == "up to date"
    collected = json.loads(run(folder, "collect", "--env", TINY, "--episodes", "30", "--size", "32", "--json").stdout)
    assert (collected["status"], collected["metrics"]["episodes"]) == ("resumed", 30)
    prefix = json.loads(run(folder, *arguments("train-vae", "--episodes", "24", "--json")).stdout)
    assert prefix["status"] == "up to date"


def test_the_same_seed_gives_the_same_bytes_with_three_workers(chain: Path, tmp_path: Path) -> None:
    for made in ("vae", "latents", "mdnrnn"):  # no work of workers
        shutil.copytree(chain / "runs" / SLUG / made, tmp_path / "runs" / SLUG / made)
    for stage in ("collect", "train-controller"):
        run(tmp_path, *arguments(stage), WM_WORKERS="3")
        assert digests(tmp_path, stage) == digests(chain, stage), stage
    run(tmp_path, *arguments("evaluate"), WM_WORKERS="3")
    returns = [
        json.loads((folder / "runs" / SLUG / "evaluation" / "controller" / "score.json").read_text())["returns"]
        for folder in (chain, tmp_path)
    ]
    assert returns[0] == returns[1]


def test_a_controller_can_be_evolved_in_the_dream(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(chain, folder)
    options = ("--in", "dream", "--name", "controller-dream", "--set", "max_steps=20")
    shown = json.loads(run(folder, *arguments("train-controller", *options, "--json")).stdout)
    assert shown["artifact"].endswith("controller-dream")
    assert shown["metrics"]["env_steps"] > 0  # of a real validation


@pytest.mark.slow
def test_a_search_starts_whitened_from_zero_and_from_a_controller(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(chain, folder)
    options = ("--in", "dream", "--set", "whiten_at=0", "--set", "max_steps=20")
    for name, more in (("zero", ()), ("warm", ("--init-from", f"runs/{SLUG}", "--set", "sigma=0.1"))):
        run(folder, *arguments("train-controller", *options, *more, "--name", name))
    zero, warm = (folder / "runs" / SLUG / name for name in ("zero", "warm"))
    source = chain / "runs" / SLUG / "controller"
    start = load_controller(source, "").parameters
    assert np.load(zero / "whitener-0.npy").shape == (len(start) // 3,) * 2
    assert np.allclose(load_controller(warm, "").means[0], start, rtol=1e-3, atol=1e-4)
    search, earlier = (json.loads((path / "manifest.json").read_text())["metrics"] for path in (warm, source))
    assert search["env_steps_before"] == earlier["env_steps"]
    assert search["seconds_before"] == earlier["seconds"]
    score = json.loads(run(folder, *arguments("evaluate", "--agent", "warm", "--json")).stdout)["metrics"]
    assert score["env_steps"] >= search["env_steps"] + earlier["env_steps"]


def test_a_trained_controller_can_collect(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(chain, folder)
    options = ("--policy", "controller", "--data", "data/round2.zarr", "--json")
    shown = json.loads(run(folder, *arguments("collect", *options)).stdout)
    assert shown["metrics"]["episodes"] == 24
    done = outcome(folder, *arguments("collect", *options, "--observation", "foreground"))
    assert done.returncode == 78
    assert "`--set observation=rgb`" in done.stderr


def started(folder: Path, stage: str) -> bool:
    """Whether a stage has committed work that a kill must not lose."""
    if stage == "collect":
        return any((folder / "data" / f"{SLUG}.zarr").glob("part-*"))
    partial = {"train-vae": "vae", "train-mdnrnn": "mdnrnn", "train-controller": "controller"}[stage] + ".partial"
    checkpoints = [*(folder / "runs" / SLUG / partial).glob("checkpoints/*.json")]
    log = folder / "runs" / SLUG / partial / "generations.jsonl"
    return bool(checkpoints) or (log.exists() and log.read_text().count("\n") > 1)


def kill_when(folder: Path, ready: Callable[[], bool], *words: str) -> None:
    process = subprocess.Popen(
        command(*words), cwd=folder, env=environment(WM_WORKERS="2"), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize(
    "stage",
    [
        "collect",
        pytest.param("train-vae", marks=pytest.mark.slow),
        pytest.param("train-mdnrnn", marks=pytest.mark.slow),
        pytest.param("train-controller", marks=pytest.mark.slow),
    ],
)
def test_a_killed_stage_resumes_to_the_same_result(stage: str, chain: Path, tmp_path: Path) -> None:
    words = arguments(stage)
    for earlier in STAGES[: STAGES.index(stage)]:
        source = {"collect": "data", "train-vae": f"runs/{SLUG}/vae", "train-mdnrnn": f"runs/{SLUG}/mdnrnn"}[earlier]
        shutil.copytree(chain / source, tmp_path / source)
    if stage == "collect":
        words = (*words, "--episodes", "600")
        run(chain_of(tmp_path / "whole"), *words)
        expected = digests(tmp_path / "whole", stage)
    else:
        expected = digests(chain, stage)
    kill_when(tmp_path, lambda: started(tmp_path, stage), *words)
    if stage == "collect":
        survived = digests(tmp_path, stage)
        assert survived
        assert survived.items() <= expected.items()
    shown = json.loads(run(tmp_path, *words, "--json").stdout)
    assert shown["status"] == "resumed"
    assert digests(tmp_path, stage) == expected


def chain_of(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@pytest.mark.slow
def test_a_killed_search_that_started_whitened_resumes_with_the_whitener_it_has_written(
    chain: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        shutil.copytree(chain, folder)
    words = arguments("train-controller", "--max-generations", "60", "--name", "whitened", "--set", "whiten_at=0")
    run(folders[0], *words)
    runs = [folder / "runs" / SLUG for folder in folders]
    log = runs[1] / "whitened.partial" / "generations.jsonl"
    kill_when(folders[1], lambda: log.exists() and log.read_text().count("\n") > 1, *words)
    written = (runs[1] / "whitened.partial" / "whitener-0.npy").stat().st_mtime_ns
    assert json.loads(run(folders[1], *words, "--json").stdout)["status"] == "resumed"
    assert (runs[1] / "whitened" / "whitener-0.npy").stat().st_mtime_ns == written  # not computed again
    files = [json.loads((path / "whitened" / manifest.NAME).read_text())["files"] for path in runs]
    for name in ("weights.safetensors", "whitener-0.npy"):
        assert files[0][name] == files[1][name]


def test_workers_do_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("collect", "--env", TINY, "--episodes", "5000", "--size", "32"), cwd=tmp_path,
        env=environment(WM_WORKERS="2"), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not started(tmp_path, "collect"):
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    process.kill()
    process.wait()
    assert not still_running(workers, 5)


def test_the_curriculum_runs_continues_and_ends_up_to_date(tmp_path: Path) -> None:
    words = ("curriculum", "--envs", TINY, "--config", small_config(tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", stop_after(Checkpoints.save, 1))
        assert outcome(tmp_path, *words).returncode == 130
    done = run(tmp_path, *words)
    assert f"[1/6] {TINY} collect: up to date" in done.stderr
    assert f"[2/6] {TINY} train-vae: resumed" in done.stderr
    assert "environment" in done.stdout
    assert "fewer than 100 episodes are a preview" in done.stdout
    assert "dream.gif" in done.stdout
    again = run(tmp_path, *words)
    assert again.stderr.count(": up to date: ") == 6
    assert again.stdout == done.stdout


def test_the_repository_holds_no_generated_files() -> None:
    listed = subprocess.run(["git", "ls-files", "data", "runs"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        assert listed.stdout.split() == ["data/README.md", "runs/README.md"]
