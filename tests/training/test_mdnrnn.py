import numpy as np
import torch

from wm.episodes.windows import WindowBatch
from wm.training.mdnrnn import input_noise, loss_arguments


def test_the_input_noise_is_annealed_to_zero_over_the_last_steps() -> None:
    factors = [round(input_noise("paper", step, steps=100, noise_anneal=0.4), 2) for step in (0, 59, 60, 80, 99)]
    assert factors == [1.0, 1.0, 1.0, 0.5, 0.03]
    assert input_noise("paper", 99, steps=100, noise_anneal=0.0) == 1.0


def test_the_input_is_a_sample_and_the_target_the_next_mean() -> None:
    means = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    flat = np.ones((1, 3), np.float32)
    batch = WindowBatch(means, np.zeros_like(means), np.zeros((1, 3, 2), np.float32), flat, flat, flat)
    z, _, target, *_ = loss_arguments(batch, None, 0.0, torch.Generator().manual_seed(0))
    assert torch.equal(z, torch.from_numpy(means[:, :-1]))
    assert torch.equal(target, torch.from_numpy(means[:, 1:]))
    noisy, *_ = loss_arguments(batch, None, 1.0, torch.Generator().manual_seed(0))
    assert 0.2 < (noisy - z).std() < 3
