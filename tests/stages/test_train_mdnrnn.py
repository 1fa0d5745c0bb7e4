from dataclasses import replace

import numpy as np
import torch

from wm.actions import ActionSpace
from wm.episodes.latents import Latents
from wm.evaluation.prediction import evaluate_predictions, format_predictions
from wm.models.mdnrnn.network import MdnRnn
from wm.report.conclusions import prediction_conclusion


def world() -> Latents:
    """Eight episodes of 50 steps: one latent moves by a half each step, one is still; a reward when it passes 15."""
    step = np.tile(np.arange(50, dtype=np.float32), 8)
    means = np.stack([step * 0.5, np.zeros(400, np.float32)], axis=1)
    return Latents(
        means=means,
        logvars=np.zeros_like(means),
        actions=np.zeros(400, np.int32),
        rewards=(step == 30).astype(np.float32),
        ends=np.arange(50, 401, 50),
        terminated=np.ones(8, bool),
        seeds=np.arange(8),
        space=ActionSpace(count=2),
    )


def model() -> MdnRnn:
    torch.manual_seed(0)
    return MdnRnn(2, 2, 8, 2, 10.0).eval()


def test_the_baselines_are_what_their_names_say() -> None:
    latents, validation = world(), np.arange(8) >= 4
    speed = np.full(400, 0.5)
    metrics = evaluate_predictions(
        model(),
        model(),
        latents,
        validation,
        {"speed": speed + latents.means[:, 0]},
        {"place": latents.means[:, 0] * 10},
    )
    assert abs(metrics["error_persistence"] - 0.5**2 / 2) < 1e-4  # one of two dimensions moves by a half
    assert metrics["error_linear"] < 1e-4
    assert metrics["error_mean"] > 100 * metrics["error_persistence"]
    assert metrics["nll_linear"] < metrics["nll_persistence"] < metrics["nll_mean"]
    errors = metrics["open_loop"]["15"]
    assert abs(errors["persistence"] - 7.5**2 / 2) < 1e-3
    assert errors["linear"] < 0.1
    own, halves = errors["M"] - errors["linear"], errors["difference_ci95"]
    assert 0 < halves["linear"] < own  # an untrained M is worse, in each of the four held-out episodes
    assert "M is worse than a linear prediction 15 steps ahead" in prediction_conclusion(metrics["open_loop"], "here")
    assert metrics["open_loop"]["50"] is None  # episodes are too short
    assert metrics["end"]["observed"] == 4
    assert metrics["velocity"]["speed"]["z"] > 0.99
    assert "open loop, 15 steps: M " in format_predictions(metrics)


def test_errors_of_positions_are_also_those_of_the_newest_dataset() -> None:
    latents, validation = world(), np.arange(8) >= 4
    place = latents.means[:, 0] * 10
    place[latents.starts[-1] :] += 1000  # of the last episode alone, which nothing predicts
    of_one = evaluate_predictions(model(), model(), latents, validation, {}, {"place": place})
    assert "newest" not in of_one
    joined = replace(latents, joined=(7, 1))
    metrics = evaluate_predictions(model(), model(), joined, validation, {}, {"place": place})
    assert metrics["positions"] == of_one["positions"]
    pooled, newest = metrics["positions"]["place"], metrics["newest"]["positions"]["place"]
    assert 1.9 < newest["V"] / pooled["V"] < 2.1  # one of four held-out episodes is wrong
    assert newest["persistence"]["15"] > 1.9 * pooled["persistence"]["15"]
    unseen = evaluate_predictions(model(), model(), joined, ~validation, {}, {"place": place})
    assert "newest" not in unseen  # none of its episodes is held out


def test_without_held_out_episodes_all_are_evaluated() -> None:
    metrics = evaluate_predictions(model(), model(), world(), np.zeros(8, bool), {}, {})
    assert np.isfinite(metrics["nll"])
    assert metrics["velocity"] == {}
