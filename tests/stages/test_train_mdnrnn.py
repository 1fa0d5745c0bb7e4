import numpy as np
import torch

from wm.actions import ActionSpace
from wm.episodes.latents import Latents
from wm.evaluation.prediction import compare, table
from wm.models.mdnrnn.network import MdnRnn


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


def test_the_guesses_are_what_their_names_say() -> None:
    latents, held = world(), np.arange(8) >= 4
    speed = np.full(400, 0.5)
    found = compare(model(), model(), latents, held, {"speed": speed + latents.means[:, 0]})
    assert abs(found["error_persistence"] - 0.5**2 / 2) < 1e-4  # one of two dimensions moves by a half
    assert found["error_linear"] < 1e-4
    assert found["error_mean"] > 100 * found["error_persistence"]
    assert found["nll_linear"] < found["nll_persistence"] < found["nll_marginal"]
    ahead = found["open_loop"]["15"]
    assert abs(ahead["persistence"] - 7.5**2 / 2) < 1e-3
    assert ahead["linear"] < 0.1
    assert found["open_loop"]["50"] is None  # episodes are too short
    assert found["end"]["happened"] == 4
    assert found["velocity"]["speed"]["z"] > 0.99
    assert "open loop, 15 steps: M " in table(found)


def test_without_held_out_episodes_all_are_judged() -> None:
    found = compare(model(), model(), world(), np.zeros(8, bool), {})
    assert np.isfinite(found["nll"])
    assert found["velocity"] == {}
