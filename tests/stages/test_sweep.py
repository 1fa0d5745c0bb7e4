"""`wm sweep` as people call it."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import SLUG, TINY, command, environment, outcome, run
from wm.artifacts import manifest

FIXED = ("--set", "max_generations=3", "--set", "validate_every=1", "--set", "validation_episodes=3")
WORDS = ("sweep", "--env", TINY, "--stage", "train-controller", *FIXED, "space.toml")
SWEEP = Path("runs", f"{SLUG}.sweep-train-controller")
NEEDS_OPTUNA = pytest.mark.extra("sweep")


@pytest.fixture
def folder(chain: Path, tmp_path: Path) -> Path:
    """V, M and C of their own, and a space."""
    own = shutil.copytree(chain, tmp_path / "own")
    (own / "space.toml").write_text('sigma = {low = 0.1, high = 1.0, log = true}\nmemory = ["trained", "none"]\n')
    return own


def test_without_optuna_a_sweep_is_one_sentence_with_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = outcome(folder, *WORDS)
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == "wm: wm sweep needs optuna; run `pip install -e '.[sweep]'`.\n"
    assert not (folder / SWEEP).exists()


@pytest.mark.parametrize(
    ("line", "words", "sentence"),
    [
        ("sigmas = [1]", (), "train-controller has no setting 'sigmas'; did you mean sigma?"),
        (
            "gamma = [0.9]",
            (),
            "--set gamma is 0.9, which means nothing with --algo cma; leave it out, or use --algo ppo.",
        ),
        ("sigma = [0.5]", ("--set", "sigma=1"), "sigma is in space.toml and in --set; give it in one of them."),
        (
            "sigma = [0.5]",
            ("--name", "a/b"),
            "--name is 'a/b'; expected letters, digits, '-', '_' and '.', beginning with neither '-' nor '.'.",
        ),
        ("sigma = [0]", (), "space.toml: --set sigma is 0.0; expected at least 1e-06."),
    ],
)
def test_a_wrong_space_is_a_usage_error_before_anything_is_written(
    line: str, words: tuple[str, ...], sentence: str, folder: Path
) -> None:
    (folder / "space.toml").write_text(line)
    done = outcome(folder, *WORDS, *words)
    assert (done.returncode, done.stdout, done.stderr) == (64, "", f"wm: {sentence}\n")
    assert not (folder / SWEEP).exists()


@pytest.mark.parametrize(
    ("stage", "space", "fixed", "sentence"),
    [
        ("train-mdnrnn", "learning_rate = [1e-3, 1e-2]", "later_weight=2",
         "--set later_weight is 2 but there is one dataset; give later ones with --data"),
        ("train-mdnrnn", "hidden = [8, 16]", "mixture=1,1", "mixture is '1,1'; expected a number above 0 for each"),
        ("train-vae", "latent = [4, 8]", "mixture=1,1", "mixture is '1,1'; expected a number above 0 for each"),
        ("train-controller", "sigma = [0.1, 0.5]", "head=tanh",
         "--set head=tanh does not fit this environment's discrete actions; use head=auto."),
        ("train-controller", 'head = ["tanh"]', "popsize=4",
         "--set head=tanh does not fit this environment's discrete actions; use head=auto."),
    ],
)  # fmt: skip
def test_what_every_trial_would_fail_of_is_refused_before_the_first(
    stage: str, space: str, fixed: str, sentence: str, folder: Path
) -> None:
    (folder / "space.toml").write_text(space)
    done = outcome(folder, "sweep", "--env", TINY, "--stage", stage, "--set", fixed, "space.toml")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith(f"wm: {sentence}"), done.stderr
    assert not list(folder.glob("runs/*sweep*"))


@NEEDS_OPTUNA
def test_a_choice_that_does_not_fit_costs_its_own_trials_alone(folder: Path) -> None:
    (folder / "space.toml").write_text('head = ["tanh", "argmax"]')
    result = json.loads(run(folder, *WORDS, "--trials", "4", "--json").stdout)
    assert result["failed"] > 0
    assert {each["head"] for each in result["best"]} == {"argmax"}


@NEEDS_OPTUNA
def test_the_best_trial_is_an_ordinary_run_and_its_command_repeats_it(folder: Path) -> None:
    result = json.loads(run(folder, *WORDS, "--trials", "3", "--json").stdout)
    assert (result["sweep"], result["complete"], result["failed"]) == (str(SWEEP), 3, 0)
    returns = [each["figure"] for each in result["best"]]
    assert returns == sorted(returns, reverse=True)
    best = folder / result["best"][0]["run"] / "controller"
    assert manifest.read(best, "controller")["metrics"]["validation_return"] == returns[0]
    again = subprocess.run(["sh", "-c", f'"$@" {result["command"].removeprefix("wm")}', "sh", *command()], cwd=folder,
                           env=environment(), capture_output=True, text=True, check=True)  # fmt: skip
    assert again.stdout.startswith(f"{Path('runs', SLUG)}/controller: created"), again.stdout
    repeated = manifest.read(folder / "runs" / SLUG / "controller", "controller")
    assert repeated["fingerprint"] == manifest.read(best, "controller")["fingerprint"]
    weights = "weights.safetensors"
    assert (folder / "runs" / SLUG / "controller" / weights).read_bytes() == (best / weights).read_bytes()
    assert (best.parent / "vae" / weights).stat().st_ino == (folder / "runs" / SLUG / "vae" / weights).stat().st_ino


@NEEDS_OPTUNA
def test_a_killed_sweep_goes_on_to_the_same_trials(folder: Path, tmp_path: Path) -> None:
    killed = subprocess.Popen(
        command(*WORDS, "--trials", "3"), cwd=folder, env=environment(), stderr=subprocess.DEVNULL, text=True
    )
    log = folder / SWEEP / "trial-0000" / "controller.partial" / "generations.jsonl"
    until = time.monotonic() + 300
    while not log.exists() and killed.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert log.exists()
    assert not log.parent.with_name("controller").exists()
    resumed = json.loads(run(folder, *WORDS, "--trials", "3", "--json").stdout)
    again = run(folder, *WORDS, "--trials", "3", "--json")
    assert json.loads(again.stdout) == resumed
    assert again.stderr == ""
    words = ("--name", "undisturbed")
    undisturbed = json.loads(run(folder, *WORDS, "--trials", "3", "--json", *words).stdout)
    figures = [
        [(each["figure"], each["sigma"], each["memory"]) for each in one["best"]] for one in (resumed, undisturbed)
    ]
    assert figures[0] == figures[1]


@NEEDS_OPTUNA
def test_a_worse_trial_is_pruned_and_leaves_nothing(folder: Path) -> None:
    (folder / "space.toml").write_text("learning_rate = {low = 1e-8, high = 1e-2}")
    words = ("sweep", "--env", TINY, "--stage", "train-vae", "--set", "steps=40", "--set", "validate_every=10",
             "--set", "batch=8", "--set", "latent=4", "space.toml", "--trials", "10")  # fmt: skip
    done = run(folder, *words)
    trials = dict(re.findall(r"^trial (\d+) \((\d+) of 10\): learning_rate=\S+, ", done.stderr, re.M))
    assert trials == {str(number): str(number + 1) for number in range(10)}  # of the table, and of the count
    assert ", pruned" in done.stderr
    assert "pruned" in done.stdout.splitlines()[0]
    sweep = folder / "runs" / f"{SLUG}.sweep-train-vae"
    assert not list(sweep.rglob("*.partial"))
    assert "wm train-vae --env" in done.stdout.splitlines()[-1]
    with_plan = run(folder, *words, "--dry-run")
    assert with_plan.stdout.startswith(f"sweep -> runs/{SLUG}.sweep-train-vae: at most 10 trials of train-vae; disk")


@NEEDS_OPTUNA
def test_trials_of_m_share_v_and_the_latents(folder: Path) -> None:
    (folder / "space.toml").write_text("hidden = [8, 16]")
    words = ("sweep", "--env", TINY, "--stage", "train-mdnrnn", "--set", "steps=20", "--set", "validate_every=10",
             "--set", "batch=4", "--set", "seq_len=8", "space.toml", "--trials", "2", "--json")  # fmt: skip
    result = json.loads(run(folder, *words).stdout)
    assert result["complete"] == 2
    for name in ("vae/weights.safetensors", "latents/manifest.json"):
        assert len({(folder / each / name).stat().st_ino for each in (f"runs/{SLUG}", result["best"][0]["run"])}) == 1
