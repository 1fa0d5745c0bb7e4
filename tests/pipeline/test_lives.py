import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.conftest import outcome, run
from tests.episodes.test_windows import make
from tests.object_store import Server
from wm.dreams.env import InitialStates
from wm.envs import registry
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents, read_latents
from wm.episodes.lives import cut
from wm.errors import Stopped
from wm.policy_gradient import controller_training
from wm.rollouts import collection
from wm.rollouts.collection import Collection, play_episode

COLLECT = ("collect", "--env", "Breakout", "--size", "32")


def of(folder: Path) -> Dataset:
    return Dataset.open(folder / "data" / "Breakout.zarr")


@contextmanager
def earlier_version() -> Iterator[None]:
    """One whose datasets did not keep lives."""
    with mock.patch.object(registry, "lives_at_start", return_value=0):
        collection._open.cache_clear()
        yield
    collection._open.cache_clear()


def test_an_episode_is_cut_after_every_frame_that_shows_a_lost_life() -> None:
    latents = replace(make(), terminated=np.array([True, False, False]))
    whole = cut(latents, np.array([], np.int64))
    assert np.array_equal(whole.ends, latents.ends)
    assert np.array_equal(whole.terminated, latents.terminated)
    lives = cut(latents, np.array([4, 20, 30]))
    assert lives.ends.tolist() == [5, 12, 17, 21, 31, 47]
    assert lives.terminated.tolist() == [True, True, False, True, True, False]
    assert lives.seeds.tolist() == [0, 0, 1, 2, 2, 2]
    assert lives.means is latents.means


def test_no_piece_has_less_than_a_step() -> None:
    lives = cut(make(), np.array([0, 4, 5, 6, 10, 11, 12, 14, 15, 16]))
    assert np.diff(lives.ends, prepend=0).min() >= 2
    assert set(make().ends) <= set(lives.ends)


def test_a_dataset_keeps_the_lives_that_the_game_reports() -> None:
    labels = play_episode(Collection(EnvConfig("Breakout", 32), "sticky", seed=0, max_steps=0), 0).labels
    assert labels[0, -1] == 5
    assert labels[-1, -1] == 0
    assert set(np.diff(labels[:, -1])) == {0.0, -1.0}
    for name, names in {"Pong": 4, "ALE/Boxing-v5": 0, "ALE/SpaceInvaders-v5": 1}.items():
        played = play_episode(Collection(EnvConfig(name, 32), "sticky", seed=0, max_steps=3), 0)
        assert played.labels.shape == (4, names)


@pytest.mark.slow
def test_a_dataset_that_was_begun_without_lives_goes_on_without(tmp_path: Path) -> None:
    with earlier_version():
        run(tmp_path, *COLLECT, "--episodes", "2")
    assert "resumed" in run(tmp_path, *COLLECT, "--episodes", "3").stdout
    assert of(tmp_path).label_names == ["ball_x", "ball_y", "paddle_x"]
    assert of(tmp_path).episodes == 3
    assert not (tmp_path / "archive").exists()


def collect_and_train_v(folder: Path) -> Path:
    run(folder, *COLLECT, "--episodes", "4")
    run(folder, "train-vae", "--env", "Breakout", "--steps", "2", "--batch", "8", "--latent", "4")
    return folder


@pytest.fixture(scope="module")
def with_lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset and a V."""
    return collect_and_train_v(tmp_path_factory.mktemp("with"))


@pytest.fixture(scope="module")
def without_lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another, whose dataset is of an earlier version."""
    with earlier_version():
        return collect_and_train_v(tmp_path_factory.mktemp("without"))


@pytest.fixture
def copies(with_lives: Path, without_lives: Path, tmp_path: Path) -> dict[str, Path]:
    """The two folders for one test to write in."""
    folders = {"with": with_lives, "without": without_lives}
    return {name: shutil.copytree(folder, tmp_path / name) for name, folder in folders.items()}


def train_m(folder: Path, network: str, *more: str) -> dict[str, Any]:
    """The metrics of an M."""
    small = ("--steps", "2", "--batch", "8", "--hidden", "8", "--network", network)
    run(folder, "train-mdnrnn", "--env", "Breakout", *small, *more)
    described = json.loads((folder / "runs" / "Breakout" / "mdnrnn" / "manifest.json").read_text())
    metrics: dict[str, Any] = described["metrics"]
    return metrics


@pytest.mark.slow
def test_m_takes_a_lost_life_for_an_end_where_the_dataset_tells(copies: dict[str, Path]) -> None:
    observed = {}
    for name, folder in copies.items():
        for network in ("rollout", "paper"):
            metrics = train_m(folder, network)
            observed[name, network] = metrics["end"]["observed"]
            assert "lives" not in metrics["positions"]
        vae = json.loads((folder / "runs" / "Breakout" / "vae" / "manifest.json").read_text())
        assert set(vae["metrics"]["probe"]) == {"ball_x", "ball_y", "paddle_x"}
        told = outcome(folder, "info", "runs/Breakout/vae").stdout.partition("provenance")[0]
        assert "ball_x" in told
        assert "lives" not in told
    held_out = observed["without", "rollout"]  # episodes, each of which ends
    assert held_out > 0
    assert observed == {
        ("with", "rollout"): 5 * held_out,
        ("with", "paper"): held_out,
        ("without", "rollout"): held_out,
        ("without", "paper"): held_out,
    }


def test_no_dream_starts_across_a_lost_life(with_lives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(with_lives, tmp_path / "with")
    train_m(folder, "rollout")
    started_from: list[list[Latents]] = []

    def spied(parts: list[Latents], *given: Any) -> InitialStates:
        started_from.append(parts)
        raise Stopped(2)

    monkeypatch.setattr(controller_training, "initial_states_anywhere", spied)
    assert outcome(folder, "train-controller", "--env", "Breakout", "--algo", "ppo", "--in", "dream").returncode == 130
    ((part,),) = started_from
    whole = read_latents(folder / "runs" / "Breakout" / "latents")
    lost = np.flatnonzero(whole.lost)
    assert len(lost) == 4 * 5
    assert set(lost + 1) <= set(part.ends)


@pytest.mark.extra("s3")
def test_a_dataset_in_a_store_that_was_begun_without_lives_goes_on_without(tmp_path: Path, s3: Server) -> None:
    address = f"s3://{s3.bucket()}/data/breakout"
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with earlier_version():
        run(tmp_path / "one", *COLLECT, "--episodes", "2", "--data", address)
    more = run(tmp_path / "other", *COLLECT, "--episodes", "3", "--data", address)  # on another machine
    assert "resumed" in more.stdout


@pytest.mark.slow
@pytest.mark.parametrize("first", ["without", "with"])
def test_the_first_dataset_decides_where_an_earlier_version_collected_one_of_two(
    copies: dict[str, Path], first: str
) -> None:
    with earlier_version() if first == "with" else nullcontext():
        run(copies[first], *COLLECT, "--episodes", "3", "--seed", "1", "--data", "data/second.zarr")
    metrics = train_m(copies[first], "rollout", "--data", "data/Breakout.zarr", "--data", "data/second.zarr")
    assert set(metrics["positions"]) == {"ball_x", "ball_y", "paddle_x"}
    assert metrics["end"]["observed"] == (6 if first == "with" else 2)  # one held-out episode of each


@pytest.mark.slow
def test_wm_dream_compares_single_lives_where_a_lost_one_ends_a_dream(tmp_path: Path) -> None:
    run(tmp_path, *COLLECT, "--episodes", "2")
    run(tmp_path, "train-vae", "--env", "Breakout", "--steps", "2", "--batch", "8", "--latent", "4")
    ended = {}
    for network in ("paper", "rollout"):
        small = ("--steps", "2", "--batch", "8", "--hidden", "8", "--network", network)
        run(tmp_path, "train-mdnrnn", "--env", "Breakout", *small)
        run(tmp_path, "dream", "--env", "Breakout", "--dreams", "4", "--max-steps", "60")
        ended[network] = json.loads((tmp_path / "runs" / "Breakout" / "dream" / "fidelity.json").read_text())
    assert ended["paper"]["real_ended"] == 0
    assert set(ended["paper"]["real_lengths"]) == {60}
    assert ended["rollout"]["real_ended"] > 0
    assert min(ended["rollout"]["real_lengths"]) < 60
