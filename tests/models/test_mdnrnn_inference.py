import math

import pytest
import torch

from wm.models.mdnrnn.inference import MdnRnnCell
from wm.models.mdnrnn.mixture_nll import LOG_SIGMA
from wm.models.mdnrnn.network import MdnRnn, expected


def make(latent: int = 3) -> MdnRnn:
    torch.manual_seed(0)
    return MdnRnn(latent=latent, action=2, hidden=16, mixtures=4, end_weight=10.0).requires_grad_(False)


def test_stepping_is_the_same_as_a_sequence() -> None:
    model = make()
    z, actions = torch.randn(2, 7, 3), torch.randn(2, 7, 2)
    hidden, _ = model.lstm(torch.cat([z, actions], -1))
    cell, state = MdnRnnCell(model, 2), model.initial_state(2)
    for t in range(7):
        state = cell.step(z[:, t], actions[:, t], state)
        assert torch.allclose(state[0], hidden[:, t], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_samples_have_the_predicted_mean_reward_and_end(dtype: torch.dtype) -> None:
    model = make()
    z, h = torch.randn(1, 3), torch.randn(1, 16)
    prediction = model.predict(z, h)
    sample = MdnRnnCell(model, 40_000, dtype).sample(
        z.expand(40_000, 3), h.expand(40_000, 16), 1.0, torch.Generator().manual_seed(0)
    )
    assert torch.allclose(sample.z.mean(0), expected(prediction)[0], atol=0.05)
    second = (prediction.logits.exp() * (prediction.log_sigma.exp().square() + prediction.mean.square())).sum(-1)
    assert torch.allclose(sample.z.std(0), (second - expected(prediction).square()).sqrt()[0], rtol=0.05)
    assert torch.allclose(sample.reward[0], prediction.reward[0], atol=0.02)
    assert torch.allclose(sample.end[0], model.end_probability(prediction)[0], atol=0.01)


def test_components_are_sampled_by_weight_and_at_low_temperature_the_likeliest() -> None:
    model = make(latent=1)
    torch.nn.init.zeros_(model.heads.weight)
    model.heads.bias[:4] = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    model.heads.bias[4:8] = torch.tensor([0.0, 10.0, 20.0, 30.0])
    model.heads.bias[8:12] = -4.0
    zero = torch.zeros(50_000, 1), torch.zeros(50_000, 16)
    sample = MdnRnnCell(model, 5000).sample(*zero, 1.0, torch.Generator().manual_seed(0)).z
    shares = torch.bincount((sample[:, 0] / 10).round().long(), minlength=4) / 50_000
    assert torch.allclose(shares, torch.tensor([0.1, 0.2, 0.3, 0.4]), atol=0.01)
    cold = MdnRnnCell(model, 5000).sample(*zero, 0.05, torch.Generator().manual_seed(0)).z
    assert (cold > 25).float().mean() > 0.99


def test_a_diverged_deviation_is_clamped() -> None:
    model = make(latent=1)
    torch.nn.init.zeros_(model.heads.weight)
    model.heads.bias[8:12] = 1e3
    sample = (
        MdnRnnCell(model, 5000)
        .sample(torch.zeros(5000, 1), torch.zeros(5000, 16), 1.0, torch.Generator().manual_seed(0))
        .z
    )
    assert sample.std() < 1.1 * math.exp(LOG_SIGMA[1])
