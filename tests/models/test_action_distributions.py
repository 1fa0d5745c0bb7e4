import numpy as np
import pytest
import torch
from torch.nn import functional

from wm.models.action_distributions import EDGE, Beta, Categorical

OUTPUTS = torch.randn(64, 6, generator=torch.Generator().manual_seed(3)) * 2


def test_the_probabilities_and_entropy_of_actions_are_torchs() -> None:
    head, theirs = Categorical(6), torch.distributions.Categorical(logits=OUTPUTS)
    choices = head.draw(OUTPUTS, np.random.default_rng(0))
    assert torch.allclose(head.log_prob(OUTPUTS, choices), theirs.log_prob(choices), atol=1e-6)
    assert torch.allclose(head.entropy(OUTPUTS), theirs.entropy(), atol=1e-6)


def test_the_densities_and_entropy_of_points_are_torchs() -> None:
    head, (alpha, beta) = Beta(3), (functional.softplus(OUTPUTS) + 1).chunk(2, 1)
    theirs = torch.distributions.Beta(alpha, beta)
    points = head.draw(OUTPUTS, np.random.default_rng(0))
    assert torch.allclose(head.log_prob(OUTPUTS, points), theirs.log_prob(points).sum(1), atol=1e-4)
    assert torch.allclose(head.entropy(OUTPUTS), theirs.entropy().sum(1), atol=1e-4)
    assert torch.allclose(head.likeliest(OUTPUTS), theirs.mean)


def test_draws_are_as_frequent_as_their_probabilities() -> None:
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0]])
    draws = Categorical(4).draw(logits.expand(20_000, 4), np.random.default_rng(1))
    shares = torch.bincount(draws, minlength=4) / len(draws)
    assert torch.allclose(shares, torch.softmax(logits[0], 0), atol=0.01)
    assert Categorical(4).likeliest(logits).tolist() == [3]


def test_points_have_the_mean_of_their_distribution_and_keep_from_the_faces() -> None:
    outputs = torch.tensor([[2.0, -1.0, 0.0, 30.0]]).expand(20_000, 4)
    points = Beta(2).draw(outputs, np.random.default_rng(1))
    assert torch.allclose(points.mean(0), Beta(2).likeliest(outputs)[0], atol=0.01)
    assert float(points.min()) >= float(np.float32(EDGE))
    assert float(points.max()) < 1


@pytest.mark.parametrize("head", [Categorical(6), Beta(3)])
def test_what_a_row_draws_does_not_depend_on_the_others(head: Categorical | Beta) -> None:
    drawn = []
    for others in (OUTPUTS[1:4], OUTPUTS[5:8]):
        randoms = [np.random.default_rng(seed) for seed in range(4)]
        drawn.append(head.draw(torch.cat([OUTPUTS[:1], others]), randoms)[0].tolist())
    assert drawn[0] == drawn[1]
