import pytest
import torch

from tests.models.test_dreamer import SMALL
from tests.models.test_pixel_weights import sample
from wm.models.dreamer.frame_norm import PLAIN, ReconstructionWeights, RunningFrameNorm


def updated(weights: ReconstructionWeights) -> RunningFrameNorm:
    """After frames of a dot that moves about."""
    norm, frames = RunningFrameNorm(SMALL), sample(1)
    for number in range(60):
        norm.update(frames[torch.randperm(64, generator=torch.Generator().manual_seed(number))[:16]], weights)
    return norm


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_the_mean_image_costs_the_given_nats(exponent: float) -> None:
    weights = ReconstructionWeights(1.0, 200.0, exponent)
    loss, squared_error = updated(weights).loss(torch.zeros(64, 32, 32, 1), sample(1), weights)
    assert 0.8 < loss.item() / 200 < 1.25
    assert abs(squared_error.item() - 1) < 0.1  # a dot of one pixel from 0 to 1


def test_errors_on_a_small_moving_object_weigh_more_than_equal_ones_on_a_constant_background() -> None:
    ratios, frames = {}, sample(1)
    for exponent in (0.0, 0.5):
        weights = ReconstructionWeights(1.0, 200.0, exponent)
        norm = updated(weights)
        exact, dot = frames.float() / 255 - norm.mean, frames > 0
        missed, smeared = torch.where(dot, exact - 1, exact), torch.where(dot, exact, exact + 1 / 32)
        losses = [norm.loss(decoded, frames, weights)[0].item() for decoded in (missed, smeared)]
        ratios[exponent] = losses[0] / losses[1]
    assert 0.9 < ratios[0.0] < 1.1
    assert ratios[0.5] > 5


def test_plain_is_the_summed_squared_error() -> None:
    norm, decoded = updated(PLAIN), torch.rand(64, 32, 32, 1) - 0.5
    loss, squared_error = norm.loss(decoded, sample(1), PLAIN)
    expected = (norm.mean + decoded - sample(1).float() / 255).square().sum((1, 2, 3)).mean()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(squared_error, expected)


def test_normalised_frames_have_mean_0_and_deviation_1_and_differences_become_frames_again() -> None:
    norm, frames = RunningFrameNorm(SMALL), sample(1)
    for _ in range(20):
        norm.update(frames, PLAIN)
    normalised = norm(frames)
    assert normalised.mean().abs() < 0.01
    assert abs(normalised.std() - 1) < 0.05
    assert (norm.to_frames(frames.float() / 255 - norm.mean) == frames).all()
