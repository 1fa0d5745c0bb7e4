import math

import pytest
import torch

from wm.models.mdnrnn import network as mdnrnn
from wm.models.mdnrnn.mixture_nll import LOG_SIGMA
from wm.models.mdnrnn.network import MdnRnn, Prediction, expected, log_likelihood


def make() -> MdnRnn:
    torch.manual_seed(0)
    return MdnRnn(latent=3, action=2, hidden=16, mixtures=4, end_weight=10.0)


def test_the_likelihood_is_that_of_torchs_mixture() -> None:
    prediction = make()(torch.randn(2, 5, 3), torch.randn(2, 5, 2))
    z = torch.randn(2, 5, 3)
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(logits=prediction.logits),
        torch.distributions.Normal(prediction.mean, prediction.log_sigma.exp()),
    )
    assert torch.allclose(log_likelihood(prediction, z), mixture.log_prob(z), atol=1e-5)
    assert torch.allclose(expected(prediction), mixture.mean, atol=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e4, 1e6])
def test_loss_and_gradients_stay_finite_at_extremes(scale: float) -> None:
    model = make()
    z = torch.randn(2, 5, 3) * scale
    ones = torch.ones(2, 5)
    loss = model.loss(z, torch.zeros(2, 5, 2), z, ones * scale, ones, ones)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_loss_in_pieces_has_the_gradient_of_the_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mdnrnn, "PIECE", 4)  # ten rows: two whole pieces and a rest
    model, z, actions, target = make(), torch.randn(2, 5, 3), torch.randn(2, 5, 2), torch.randn(2, 5, 3)
    mask = torch.tensor([[1.0, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with torch.no_grad():
        model.heads.bias[2 * 12 : 2 * 12 + 3] += 5  # these are clamped, and have no gradient
    nll = model.loss(z, actions, target, torch.zeros(2, 5), torch.zeros(2, 5), mask).nll
    expected_nll = -(log_likelihood(model(z, actions), target).mean(-1) * mask).sum() / mask.sum()
    torch.testing.assert_close(nll, expected_nll)
    parameters = list(model.parameters())
    for one, other in zip(*(torch.autograd.grad(nll, parameters) for nll in (nll, expected_nll)), strict=True):
        torch.testing.assert_close(one, other)


def test_log_sigma_is_clamped() -> None:
    model = make()
    for value in (-1e3, 1e3):
        with torch.no_grad():
            model.heads.bias[2 * 12 : 3 * 12] = value  # three latents of four mixtures
        prediction = model(torch.zeros(1, 1, 3), torch.zeros(1, 1, 2))
        assert prediction.log_sigma.min() >= LOG_SIGMA[0]
        assert prediction.log_sigma.max() <= LOG_SIGMA[1]


def test_padding_does_not_count() -> None:
    model = make()
    z, actions, zero = torch.randn(1, 6, 3), torch.randn(1, 6, 2), torch.zeros(1, 6)
    mask = torch.tensor([[1.0, 1, 1, 1, 0, 0]])
    other = z.clone()
    other[:, 4:] = 99
    one = model.loss(z, actions, z, zero, zero, mask).total
    two = model.loss(z, actions, other, zero, zero, mask).total
    assert torch.allclose(one, two)
    short = model.loss(z[:, :4], actions[:, :4], z[:, :4], zero[:, :4], zero[:, :4], mask[:, :4]).total
    assert torch.allclose(one, short, atol=1e-6)


def test_the_end_heads_probability_is_calibrated_although_its_loss_is_weighted() -> None:
    model = make()
    rate = 0.02
    # The weighted cross-entropy of a constant is lowest at logit = log(w r / (1 - r)).
    logit = math.log(10.0 * rate / (1 - rate))
    prediction = Prediction(*(torch.zeros(()),) * 4, torch.tensor(logit))
    assert abs(model.end_probability(prediction).item() - rate) < 1e-3


def test_it_learns_a_transition_rule_and_the_reward() -> None:
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        z = torch.randn(16, 8, 3, generator=generator)
        actions = torch.randint(0, 2, (16, 8, 1), generator=generator).float().expand(16, 8, 2)
        target = torch.where(actions[..., :1] > 0, z, -z)
        ones = torch.ones(16, 8)
        loss = model.loss(z, actions, target, actions[..., 0], ones * 0, ones)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    assert loss.nll < 1.0  # a unit Gaussian has 1.42
    assert loss.reward < 0.05
