"""M trained on its own rollouts, in a world that no linear prediction can follow: what an action does depends on z."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.envs.catch import CELLS, Catch
from wm.episodes.latents import Latents
from wm.errors import Stopped, UsageProblem
from wm.evaluation.event_rates import event_rates, event_warning
from wm.evaluation.prediction import evaluate_predictions
from wm.models.mdnrnn.predictor import Predictor
from wm.runtime import Runtime
from wm.settings import MdnRnnSettings
from wm.training.mdnrnn import (
    fit_mdnrnn,
    fit_normalization,
    fit_residuals,
    mdnrnn_config,
    new_mdnrnn,
    training_windows,
    validation_count,
    validation_windows,
)
from wm.training.precision import Precision

EPISODES, STEPS = 80, 70
SETTINGS = MdnRnnSettings(
    network="rollout", hidden=0, units=96, batch=64, steps=125, rollout_steps=5, warm_up=2, learning_rate=1e-2
)


def world() -> Latents:
    """z is the direction of a car (cosine and sine), its place, and a latent that nothing moves. Actions steer, a step
    to the north pays 2, and the episode ends where the car leaves the road."""
    random = np.random.default_rng(0)
    means, actions, rewards, ends, terminated = [], [], [], [], []
    for _ in range(EPISODES):
        angle, place, over = random.uniform(-np.pi, np.pi), 0.0, False
        for step in range(STEPS + 1):
            means.append([np.cos(angle), np.sin(angle), place, 0.0])
            steering = int(random.integers(3))
            last = over or step == STEPS
            angle += 0.0 if last else 0.5 * (steering - 1)
            place += 0.0 if last else 0.1 * np.cos(angle)
            actions.append(0 if last else steering)
            rewards.append(2.0 if np.sin(angle) > 0.7 and not last else 0.0)
            if last:
                break
            over = abs(place) > 0.8
        ends.append(len(means))
        terminated.append(over)
    z = np.array(means, np.float32)
    return Latents(
        means=z,
        logvars=np.full_like(z, -8.0),
        actions=np.array(actions, np.int32),
        rewards=np.array(rewards, np.float32),
        ends=np.array(ends),
        terminated=np.array(terminated),
        seeds=np.arange(EPISODES),
        space=ActionSpace(count=3),
    )


def train(folder: Path, settings: MdnRnnSettings, latents: Latents, stop_at: float = np.inf) -> Predictor:
    """M after its training, which a signal stops after so many questions for one."""
    asked = 0

    def stop_requested() -> bool:
        nonlocal asked
        asked += 1
        return asked >= stop_at

    def raise_if_stopped() -> None:
        raise Stopped(15)

    runtime = Runtime(time.monotonic, stop_requested=stop_requested, raise_if_stopped=raise_if_stopped)
    model = new_mdnrnn(mdnrnn_config(settings, 4, latents.space), 0)
    fit_normalization(model, latents)
    windows = training_windows(settings, [latents], [settings.batch], 0)
    validation = validation_windows(settings, [latents], [validation_count(settings.network)], 0)
    precision = Precision("fp32", torch.device("cpu"))
    fit_mdnrnn(runtime, folder, "M", settings, windows, validation, model, 0, precision)
    fit_residuals(model.eval().requires_grad_(False), validation, settings.warm_up)
    return model


def held_out(episodes: int = EPISODES) -> NDArray[np.bool_]:
    return np.arange(episodes) % 5 == 0


def test_a_validation_looks_at_later_episodes_as_often_as_the_training_does() -> None:
    random_play = world()
    later = replace(random_play, means=random_play.means + 100, seeds=random_play.seeds + 1000)
    batch = validation_windows(SETTINGS, [random_play, later], [10, 30], 0)
    assert (batch.means[:, -1].max(1) > 50).sum() == 30
    shown = training_windows(SETTINGS, [random_play, later], [10, 30], 0)
    trained = {row.tobytes() for step in range(50) for row in shown.at(step).means[:, 3]}
    assert trained.isdisjoint({row.tobytes() for row in batch.means[:, 3] if row.any()})


@pytest.mark.slow
def test_its_rollouts_hold_where_the_baselines_do_not(tmp_path: Path, full_position_probe: None) -> None:
    latents = world()
    model = train(tmp_path, SETTINGS, latents)
    metrics = evaluate_predictions(model, model, latents, held_out(), {}, {"place": 10 * latents.means[:, 2]})
    errors = metrics["open_loop"]["15"]
    assert errors["M"] < 0.05 * min(errors["linear"], errors["persistence"], errors["mean"])
    assert metrics["nll"] < metrics["nll_linear"]
    place = metrics["positions"]["place"]
    assert place["V"] < place["M"]["15"] < 0.3 * place["persistence"]["15"]
    assert metrics["events"]["warning"] == ""
    assert metrics["events"]["rates"]["positive"]["real"] > 100
    assert metrics["events"]["rates"]["end"]["events"] > 10
    assert metrics["reward"]["recall"] > 0.9
    assert 0.5 < metrics["end"]["expected"] / metrics["end"]["observed"] < 2
    assert metrics["end"]["brier"] < 0.5 * metrics["end"]["brier_rate"]


def catch(episodes: int) -> Latents:
    """Random play, with the ball's column and row and the paddle's column as z."""
    env, random = Catch(), np.random.default_rng(0)
    means, actions, rewards = [], random.integers(0, 3, (episodes, CELLS)), np.zeros((episodes, CELLS), np.float32)
    for episode in range(episodes):
        env.reset(seed=episode)
        for step in range(CELLS):
            means.append([env.ball / 4 - 1, env.row / 4 - 1, env.paddle / 4 - 1, 0.0])
            if step < CELLS - 1:
                rewards[episode, step] = env.step(actions[episode, step])[1]
    z = np.array(means, np.float32)
    return Latents(
        means=z,
        logvars=np.full_like(z, -8.0),
        actions=actions.ravel().astype(np.int32),
        rewards=rewards.ravel(),
        ends=np.arange(CELLS, len(z) + 1, CELLS),
        terminated=np.ones(episodes, bool),
        seeds=np.arange(episodes),
        space=ActionSpace(count=3),
    )


@pytest.mark.slow
def test_dreams_with_the_actions_of_catch_have_its_events(tmp_path: Path) -> None:
    latents = catch(1600)
    model = train(tmp_path, replace(SETTINGS, steps=1000), latents)
    validation = held_out(len(latents.ends))
    rates = event_rates(model, latents, validation)
    assert event_warning(rates, 1.0) == ""
    caught = (latents.rewards.reshape(-1, CELLS)[validation] > 0).sum()
    assert rates["positive"]["events"] < 2 * caught  # windows overlap, but an event counts once
    assert {name: rate["events"] > 50 for name, rate in rates.items()} == dict.fromkeys(rates, True)
    assert abs(rates["end"]["dream"] / rates["end"]["real"] - 1) < 0.05


@pytest.mark.parametrize("hidden", [0, pytest.param(8, marks=pytest.mark.slow)])
def test_a_training_that_was_stopped_ends_with_the_same_bits(tmp_path: Path, hidden: int) -> None:
    latents = world()
    settings = MdnRnnSettings(network="rollout", hidden=hidden, units=16, batch=8, steps=30, validate_every=10)
    whole = train(tmp_path / "whole", settings, latents)
    with pytest.raises(Stopped):
        train(tmp_path / "stopped", settings, latents, stop_at=17)
    resumed = train(tmp_path / "stopped", settings, latents)
    for (name, one), two in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(one, two), name


def test_a_setting_of_the_other_network_is_refused() -> None:
    with pytest.raises(UsageProblem, match=r"--mixtures is 3, a setting of --network paper; leave it out"):
        MdnRnnSettings(network="rollout", mixtures=3)
    with pytest.raises(UsageProblem, match=r"--set warm_up is 3, a setting of --network rollout"):
        MdnRnnSettings(warm_up=3)
    with pytest.raises(UsageProblem, match=r"--hidden is 0; expected at least 1 unit, or --network rollout"):
        MdnRnnSettings(hidden=0)
    assert "units" not in MdnRnnSettings().result_settings()
    assert "seq_len" not in MdnRnnSettings(network="rollout").result_settings()
