import numpy as np
import torch

from stages.train_mdnrnn import compare
from wm.actions import ActionSpace
from wm.episodes.latents import Latents
from wm.episodes.windows import Windows
from wm.models.mdnrnn import MdnRnn


def test_the_baselines_are_what_their_names_say() -> None:
    steps = np.arange(400, dtype=np.float32)
    means = np.stack([steps * 0.5, np.zeros(400, np.float32)], axis=1)
    latents = Latents(
        means=means,
        logvars=np.zeros_like(means),
        actions=np.zeros(400, np.int32),
        rewards=np.zeros(400, np.float32),
        ends=np.array([200, 400]),
        terminated=np.array([True, True]),
        seeds=np.array([0, 1]),
        space=ActionSpace(count=2),
    )
    held = np.array([False, True])
    torch.manual_seed(0)
    found = compare(MdnRnn(2, 2, 8, 2, 10.0).eval(), latents, held, Windows(latents, held, 16, 32, 0))
    assert abs(found["error_persistence"] - 0.5**2 / 2) < 1e-4  # one of two dimensions moves by a half
    assert found["error_mean"] > 100 * found["error_persistence"]
    assert np.isfinite(list(found.values())).all()
