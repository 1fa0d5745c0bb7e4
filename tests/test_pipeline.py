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
from wm.artifacts import manifest
from wm.pretrained import load_controller


def digests(folder: Path, name: str) -> dict[str, str]:
    """Checksums of an artifact's files, or of a dataset's parts; logs and pictures of times are left out."""
    if name == "collect":
        parts = (folder / "data" / f"{SLUG}.zarr").glob("part-*")
        return {part.name: json.loads((part / manifest.NAME).read_text())["sha256"] for part in parts}
    artifact = {"train-vae": "vae", "train-mdnrnn": "mdnrnn", "train-controller": "controller"}[name]
    files = json.loads((folder / "runs" / SLUG / artifact / manifest.NAME).read_text())["files"]
    return {file: entry["sha256"] for file, entry in files.items() if file.endswith((".safetensors", "model.json"))}


def test_every_stage_leaves_an_artifact_whose_checksums_hold(chain: Path) -> None:
    checked = json.loads(run(chain, "verify", ".", "--json").stdout)["checked"]
    shown = {found["path"]: found["files"] for found in checked}
    made = {Path(name).name for name in shown}
    assert {"vae", "latents", "mdnrnn", "controller", "dream", "random", f"{SLUG}.zarr"} <= made
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
    with Image.open(chain / "runs" / SLUG / "dream" / "dream.gif") as movie:
        assert movie.n_frames == 8  # type: ignore[attr-defined]


def test_the_score_has_an_interval_a_baseline_and_a_protocol(chain: Path) -> None:
    score = json.loads((chain / "runs" / SLUG / "evaluation" / "controller" / "score.json").read_text())
    assert score["episodes"] == len(score["returns"]) == 6
    assert score["preview"] is True
    assert score["ci95"] > 0
    assert score["random"]["episodes"] == 6
    assert "unmodified" in score["protocol"]
    assert score["env_steps"] > 100


def test_a_changed_setting_redoes_only_what_depends_on_it_and_says_what_changed(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(chain, folder)
    done = run(folder, *arguments("train-vae", "--latent", "5"))
    assert "vae: latent 4 -> 5; latents, mdnrnn, controller, dream, evaluation depend on it; the old one" in done.stderr
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


def test_the_dream_can_be_trained_in(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(chain, folder)
    options = ("--in", "dream", "--name", "controller-dream", "--set", "max_steps=20")
    shown = json.loads(run(folder, *arguments("train-controller", *options, "--json")).stdout)
    assert shown["artifact"].endswith("controller-dream")
    assert shown["metrics"]["env_steps"] > 0  # the validations are real


def test_a_search_begins_evened_out_from_zero_and_from_a_controller(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(chain, folder)
    evened = ("--in", "dream", "--set", "evened=true", "--set", "dreams=4", "--set", "max_steps=20")
    for name, more in (("whole", ()), ("warm", ("--from", f"runs/{SLUG}", "--set", "sigma=0.1"))):
        run(folder, *arguments("train-controller", *evened, *more, "--name", name))
    whole, warm = (folder / "runs" / SLUG / name for name in ("whole", "warm"))
    assert (whole / "basis-0.npy").is_file()
    started_from = chain / "runs" / SLUG / "controller"
    started = load_controller(started_from, "").parameters
    assert np.allclose(load_controller(warm, "").means[0], started, rtol=1e-3, atol=1e-4)
    spent, before = (json.loads((folder / "manifest.json").read_text())["metrics"] for folder in (warm, started_from))
    assert spent["env_steps_before"] == before["env_steps"]
    assert spent["seconds_before"] == before["seconds"]
    scored = json.loads(run(folder, *arguments("evaluate", "--controller", "warm", "--json")).stdout)["metrics"]
    assert scored["env_steps"] >= spent["env_steps"] + before["env_steps"]
    assert np.load(whole / "basis-0.npy").shape == (len(started) // 3,) * 2


def test_a_trained_controller_can_collect(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(chain, folder)
    options = ("--policy", "controller", "--data", "data/round2.zarr", "--json")
    shown = json.loads(run(folder, *arguments("collect", *options)).stdout)
    assert shown["metrics"]["episodes"] == 24
    done = outcome(folder, *arguments("collect", *options, "--show", "changes"))
    assert done.returncode == 78
    assert "collect with `--set show=picture`" in done.stderr


def started(folder: Path, stage: str) -> bool:
    """Whether a stage has committed something that a kill must not lose."""
    if stage == "collect":
        return any((folder / "data" / f"{SLUG}.zarr").glob("part-*"))
    partial = {"train-vae": "vae", "train-mdnrnn": "mdnrnn", "train-controller": "controller"}[stage] + ".partial"
    found = [*(folder / "runs" / SLUG / partial).glob("checkpoints/*.json")]
    log = folder / "runs" / SLUG / partial / "generations.jsonl"
    return bool(found) or (log.exists() and log.read_text().count("\n") > 1)


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


@pytest.mark.parametrize("stage", ["collect", "train-vae", "train-mdnrnn", "train-controller"])
def test_a_killed_stage_goes_on_and_ends_as_if_nothing_had_happened(stage: str, chain: Path, tmp_path: Path) -> None:
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


def test_a_killed_search_that_began_evened_out_goes_on_from_the_basis_it_kept(chain: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        shutil.copytree(chain, folder)
    words = arguments("train-controller", "--max-generations", "60", "--name", "evened", "--set", "evened=true")
    run(folders[0], *words)
    places = [folder / "runs" / SLUG for folder in folders]
    log = places[1] / "evened.partial" / "generations.jsonl"
    kill_when(folders[1], lambda: log.exists() and log.read_text().count("\n") > 1, *words)
    kept = (places[1] / "evened.partial" / "basis-0.npy").stat().st_mtime_ns
    shown = json.loads(run(folders[1], *words, "--json").stdout)
    assert shown["status"] == "resumed"
    assert (places[1] / "evened" / "basis-0.npy").stat().st_mtime_ns == kept  # not worked out again
    sums = [json.loads((place / "evened" / manifest.NAME).read_text())["files"] for place in places]
    for name in ("weights.safetensors", "basis-0.npy"):
        assert sums[0][name] == sums[1][name]


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
    kill_when(tmp_path, lambda: started(tmp_path, "train-vae"), *words)
    done = run(tmp_path, *words)
    assert "[1/6]" in done.stderr
    assert "environment" in done.stdout
    assert "preview, n=4" in done.stdout
    assert "dream.gif" in done.stdout
    again = run(tmp_path, *words)
    assert again.stderr.count(": up to date: ") == 6
    assert again.stdout == done.stdout


def test_the_repository_holds_no_generated_files() -> None:
    listed = subprocess.run(["git", "ls-files", "data", "runs"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        assert listed.stdout.split() == ["data/README.md", "runs/README.md"]
