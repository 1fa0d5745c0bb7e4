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
    whole, _ = model.lstm(torch.cat([z, actions], -1))
    cell, state = MdnRnnCell(model, 2), model.initial_state(2)
    for t in range(7):
        state = cell.step(z[:, t], actions[:, t], state)
        assert torch.allclose(state[0], whole[:, t], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_drawn_has_the_mean_reward_and_end_that_m_says(dtype: torch.dtype) -> None:
    model = make()
    z, h = torch.randn(1, 3), torch.randn(1, 16)
    said = model.predict(z, h)
    drawn = MdnRnnCell(model, 40_000, dtype).sample(
        z.expand(40_000, 3), h.expand(40_000, 16), 1.0, torch.Generator().manual_seed(0)
    )
    assert torch.allclose(drawn.z.mean(0), expected(said)[0], atol=0.05)
    second = (said.logits.exp() * (said.log_sigma.exp().square() + said.mean.square())).sum(-1)
    assert torch.allclose(drawn.z.std(0), (second - expected(said).square()).sqrt()[0], rtol=0.05)
    assert torch.allclose(drawn.reward[0], said.reward[0], atol=0.02)
    assert torch.allclose(drawn.end[0], model.end_probability(said)[0], atol=0.01)


def test_components_come_up_as_often_as_they_weigh_and_the_cold_choose_the_likeliest() -> None:
    model = make(latent=1)
    torch.nn.init.zeros_(model.heads.weight)
    model.heads.bias[:4] = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    model.heads.bias[4:8] = torch.tensor([0.0, 10.0, 20.0, 30.0])
    model.heads.bias[8:12] = -4.0
    zero = torch.zeros(50_000, 1), torch.zeros(50_000, 16)
    drawn = MdnRnnCell(model, 5000).sample(*zero, 1.0, torch.Generator().manual_seed(0)).z
    shares = torch.bincount((drawn[:, 0] / 10).round().long(), minlength=4) / 50_000
    assert torch.allclose(shares, torch.tensor([0.1, 0.2, 0.3, 0.4]), atol=0.01)
    cold = MdnRnnCell(model, 5000).sample(*zero, 0.05, torch.Generator().manual_seed(0)).z
    assert (cold > 25).float().mean() > 0.99


def test_a_deviation_that_ran_away_is_held() -> None:
    model = make(latent=1)
    torch.nn.init.zeros_(model.heads.weight)
    model.heads.bias[8:12] = 1e3
    drawn = (
        MdnRnnCell(model, 5000)
        .sample(torch.zeros(5000, 1), torch.zeros(5000, 16), 1.0, torch.Generator().manual_seed(0))
        .z
    )
    assert drawn.std() < 1.1 * math.exp(LOG_SIGMA[1])
