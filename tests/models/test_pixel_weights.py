import pytest
import torch

from wm.models.pixel_weights import PixelWeights


def sample(channels: int) -> torch.Tensor:
    """A black image with a bright dot at another place in every frame."""
    frames = torch.zeros(64, 32, 32, channels, dtype=torch.uint8)
    for number in range(64):
        frames[number, number % 32, (7 * number) % 32] = 255
    return frames


@pytest.mark.parametrize("channels", [1, 3])
def test_rare_colours_at_a_place_weigh_more_and_the_mean_weight_is_one(channels: int) -> None:
    frames = sample(channels)
    weights = PixelWeights(frames, 0.75)(frames)
    assert weights.shape == (64, 32, 32)
    assert abs(weights.mean().item() - 1) < 1e-3
    dot = frames[..., 0] > 0
    assert weights[dot].min() > 10 * weights[~dot].max()


def test_an_exponent_of_zero_gives_equal_weights() -> None:
    assert (PixelWeights(sample(3), 0.0)(sample(3)) == 1).all()


def test_the_weight_of_a_colour_without_samples_is_capped() -> None:
    weights = PixelWeights(sample(3), 2.0)(torch.full((1, 32, 32, 3), 130, dtype=torch.uint8))
    assert torch.isfinite(weights).all()
