"""`wm train-controller --algo ppo` on a tiny world, through the real commands."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import SLUG, TINY, command, environment, outcome, run
from wm.artifacts import manifest
from wm.episodes.latents import read_latents
from wm.evolution.search_log import LOG, read_log
from wm.policy_gradient.network import LEAST_STD, inputs_seen
from wm.pretrained import load_controller, load_mdnrnn
from wm.rollouts.agents import VmcAgent
from wm.rollouts.loop import EpisodeJob

WORDS = ("train-controller", "--env", TINY, "--algo", "ppo", "--set", "units=32")
SHORT = (*WORDS, "--max-env-steps", "1200", "--set", "rollout_steps=8", "--set", "validate_steps=500",
         "--set", "validation_episodes=2", "--set", "memory=trained", "--set", "previous_action=true")  # fmt: skip


@pytest.fixture(scope="module")
def trained(chain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with V, M, and a C by policy gradient, that has learned."""
    folder = with_data_and_inputs(chain, tmp_path_factory.mktemp("trained"))
    run(folder, *WORDS, "--max-env-steps", "7000", "--set", "rollout_steps=16", "--set", "learning_rate=0.003",
        "--set", "validate_steps=3000", "--set", "validation_episodes=12")  # fmt: skip
    return folder


def metrics_of(artifact: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((artifact / manifest.NAME).read_text())["metrics"]
    return metrics


def weights_of(folder: Path) -> str:
    files = json.loads((folder / "runs" / SLUG / "controller" / manifest.NAME).read_text())["files"]
    return str(files["weights.safetensors"]["sha256"])


def with_data_and_inputs(chain: Path, folder: Path) -> Path:
    shutil.copytree(chain / "data", folder / "data")
    return with_inputs(chain, folder)


def with_inputs(chain: Path, folder: Path) -> Path:
    for made in ("vae", "latents", "mdnrnn"):
        shutil.copytree(chain / "runs" / SLUG / made, folder / "runs" / SLUG / made)
    return folder


def test_it_learns(trained: Path) -> None:
    score = json.loads(run(trained, "evaluate", "--env", TINY, "--episodes", "40", "--json").stdout)["metrics"]
    assert score["mean"] - score["ci95"] > score["random"]["mean"] + score["random"]["ci95"] + 3
    assert score["agent"] == "vmc"
    metrics = metrics_of(trained / "runs" / SLUG / "controller")
    assert metrics["ended"] == "steps"
    assert score["env_steps"] > metrics["env_steps"] >= 7000


def test_the_best_policy_by_validation_is_kept_and_acts_as_it_acts_better(trained: Path) -> None:
    folder = trained / "runs" / SLUG / "controller"
    controller, metrics = load_controller(folder, ""), metrics_of(folder)
    lines = read_log(folder)
    scores = {line["generation"]: np.mean(line["validation"]) for line in lines if "validation" in line}
    assert len(scores) > 1
    assert scores[metrics["best_generation"]] == max(scores.values()) == metrics["validation_return_likeliest"]
    better = metrics["validation_return_sampled"] > metrics["validation_return_likeliest"]
    assert controller.config.sampled == controller.model.sampled == metrics["sampled"] == better
    assert (controller.config.head, controller.config.layers) == ("categorical", (32, 32))
    assert controller.model.inputs == 2 * 4
    assert len(controller.means) == len(metrics["means"]) <= 16
    assert metrics["means"][0] == 1
    assert metrics["generations"] == len(lines) == lines[-1]["generation"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["real", "dream"])
def test_memory_is_watched_over_the_whole_training(chain: Path, tmp_path: Path, place: str) -> None:
    """Its snapshots are due after a quarter and near the end, which the guard has to know in iterations."""
    folder = with_data_and_inputs(chain, tmp_path)
    if place == "real":
        words = ("--max-env-steps", "2560", "--set", "rollout_steps=8")
    else:
        words = ("--in", "dream", "--set", "max_dream_steps=8000", "--set", "num_envs=16", "--set", "rollout_steps=25")
    run(folder, *WORDS, *words, "--set", "validation_episodes=2", "--snapshot")
    controller = folder / "runs" / SLUG / "controller"
    logged = [line["generation"] for line in read_log(controller)]
    taken = sorted(int(path.stem.split("-")[1]) for path in controller.glob("memory-*.json"))
    assert len(taken) == 2
    assert taken[0] < len(logged) / 2 < 0.9 * len(logged) <= taken[1]


def test_the_other_commands_take_its_controller(trained: Path) -> None:
    shown = json.loads(run(trained, "dream", "--env", TINY, "--dreams", "4", "--max-steps", "20", "--json").stdout)
    assert shown["metrics"]["policies"] == len(metrics_of(trained / "runs" / SLUG / "controller")["means"])
    run(
        trained,
        "collect",
        "--env",
        TINY,
        "--episodes",
        "3",
        "--policy",
        "controller",
        "--data",
        "c.zarr",
        "--size",
        "32",
    )
    run(trained, "export", "c.zarr", "--to", "npz", "--out", "exported")
    run(trained, "report", f"runs/{SLUG}", "--out", "report.html")
    text = (trained / "report.html").read_text()
    assert "trained by policy gradient for" in text
    assert "iteration" in text
    assert "candidates" not in text
    run(trained, "compare", f"runs/{SLUG}", "--out", "plot.png")


@pytest.fixture(scope="module")
def undisturbed(chain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short training without workers."""
    folder = with_inputs(chain, tmp_path_factory.mktemp("undisturbed"))
    run(folder, *SHORT)
    return folder


def test_any_number_of_workers_gives_the_same_weights(undisturbed: Path, tmp_path: Path) -> None:
    run(with_inputs(undisturbed, tmp_path), *SHORT, WM_WORKERS="2")
    assert weights_of(tmp_path) == weights_of(undisturbed)


@pytest.mark.slow
def test_a_killed_training_resumes_bit_for_bit(undisturbed: Path, tmp_path: Path) -> None:
    killed = with_inputs(undisturbed, tmp_path)
    process = subprocess.Popen(command(*SHORT), cwd=killed, env=environment(), stderr=subprocess.DEVNULL)
    partial = killed / "runs" / SLUG / "controller.partial"
    while not list(partial.glob("checkpoints/*.json")) or len((partial / LOG).read_bytes().splitlines()) < 5:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert_a_shorter_log_is_refused(killed, tmp_path.with_name("shorter-log"))
    done = run(killed, *SHORT, "--json")
    assert "resumes at iteration" in done.stderr
    assert json.loads(done.stdout)["status"] == "resumed"
    assert weights_of(killed) == weights_of(undisturbed)
    assert metrics_of(killed / "runs" / SLUG / "controller")["earlier_seconds"] > 0
    logs = [read_log(folder / "runs" / SLUG / "controller") for folder in (undisturbed, killed)]
    assert [line | {"seconds": 0} for line in logs[0]] == [line | {"seconds": 0} for line in logs[1]]


def assert_a_shorter_log_is_refused(killed: Path, copy: Path) -> None:
    shutil.copytree(killed, copy)
    log = copy / "runs" / SLUG / "controller.partial" / LOG
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    done = outcome(copy, *SHORT)
    assert done.returncode == 65
    assert f"{LOG} lacks lines that were there at iteration" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--algo", "ppo", "--popsize", "8"),
            "--popsize is 8, which means nothing with --algo ppo; leave it out, or use",
        ),
        (
            ("--set", "units=64"),
            "--set units is 64, which means nothing with --algo cma; leave it out, or use --algo ppo",
        ),
        (("--algo", "ppo", "--set", "num_envs=12"), "--set num_envs is 12; expected a multiple of 8"),
    ],
)
def test_settings_that_mean_nothing_are_refused(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    done = outcome(tmp_path, "train-controller", "--env", TINY, *words)
    assert done.returncode == 64
    assert sentence in done.stderr


def test_a_preset_for_another_algorithm_gives_what_means_something(tmp_path: Path) -> None:
    words = ("train-controller", "--env", "Pong", "--preset", "laptop", "--print-config", "--json")
    evolved, by_gradient = (json.loads(run(tmp_path, *words, *more).stdout) for more in (("--algo", "cma"), ()))
    assert evolved["train-controller"]["popsize"] == {"value": 32, "source": "preset laptop"}
    assert by_gradient["train-controller"]["popsize"] == {"value": 16, "source": "default"}


def test_the_plan_names_steps_and_a_time(chain: Path, tmp_path: Path) -> None:
    plan = json.loads(run(with_inputs(chain, tmp_path), *SHORT, "--dry-run", "--json").stdout)["plan"][0]
    assert "1,200 environment steps by policy gradient (real)" in plan["what"]
    assert 0 < plan["seconds"][0] < plan["seconds"][1] < 120


def test_inputs_are_standardised_by_recorded_episodes_as_c_receives_them(undisturbed: Path) -> None:
    folder = undisturbed / "runs" / SLUG
    mdnrnn, trained = load_mdnrnn(folder / "mdnrnn", ""), load_controller(folder / "controller", "")
    latents = read_latents(folder / "latents")
    seen = inputs_seen(trained.model, mdnrnn.model, latents)
    assert seen.shape == (latents.rows - len(latents.ends), trained.model.inputs)  # the last row has no action
    assert torch.allclose(trained.networks["mean"], seen.mean(0), atol=1e-6)
    assert torch.allclose(trained.networks["std"], seen.std(0).clamp(min=LEAST_STD), atol=1e-6)
    agent = VmcAgent(None, mdnrnn.model, trained.model, trained.parameters[None], 1)
    agent.begin(0, EpisodeJob(0, 0))
    own = trained.model.inputs - mdnrnn.model.hidden  # before h, which follows from the agent's own actions here
    for row in range(5):
        received = agent.observe(latents.means[row : row + 1])
        assert torch.allclose(received[:, :own], seen[row : row + 1, :own], atol=1e-5)
        agent.decide(received, [{}])
        action = torch.from_numpy(latents.space.encode(latents.actions[row : row + 1]))
        agent.restore_episode(0, agent.episode_state(0) | {"action": action[0].tolist()})
    actions = torch.from_numpy(latents.space.encode(latents.actions[: latents.ends[0] - 1]))
    hidden = mdnrnn.model.hidden_states(torch.from_numpy(latents.means[: len(actions)])[None], actions[None])[0]
    assert not seen[0, own:].any()
    assert torch.allclose(seen[1 : len(actions), own:], hidden[:-1], atol=1e-5)
