import pytest
import torch

from tests.models.test_dreamer import SMALL
from tests.models.test_pixel_weights import sample
from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import PLAIN, ReconstructionWeights, RunningFrameNorm


def followed(drawing: ReconstructionWeights) -> RunningFrameNorm:
    """What has seen a dot that moves about."""
    sight, frames = RunningFrameNorm(SMALL), sample(1)
    for number in range(60):
        sight.follow(frames[torch.randperm(64, generator=torch.Generator().manual_seed(number))[:16]], drawing)
    return sight


@pytest.mark.parametrize("rarity", [0.0, 0.5])
def test_always_showing_the_mean_picture_costs_the_nats_that_are_asked_for(rarity: float) -> None:
    drawing = ReconstructionWeights(1.0, 200.0, rarity)
    cost, plain = followed(drawing).error(torch.zeros(64, 32, 32, 1), sample(1), drawing)
    assert 0.8 < cost.item() / 200 < 1.25
    assert abs(plain.item() - 1) < 0.1  # a dot of one pixel from 0 to 1


def test_a_small_thing_that_moves_counts_more_than_as_large_an_error_of_what_is_always_the_same() -> None:
    costs, frames = {}, sample(1)
    for rarity in (0.0, 0.5):
        drawing = ReconstructionWeights(1.0, 200.0, rarity)
        sight = followed(drawing)
        right, dot = frames.float() / 255 - sight.mean, frames > 0
        missed, smeared = torch.where(dot, right - 1, right), torch.where(dot, right, right + 1 / 32)
        costs[rarity] = sight.error(missed, frames, drawing)[0].item() / sight.error(smeared, frames, drawing)[0].item()
    assert 0.9 < costs[0.0] < 1.1
    assert costs[0.5] > 5


def test_plain_is_the_summed_squared_error() -> None:
    sight, drawn = followed(PLAIN), torch.rand(64, 32, 32, 1) - 0.5
    cost, plain = sight.error(drawn, sample(1), PLAIN)
    wanted = (sight.mean + drawn - sample(1).float() / 255).square().sum((1, 2, 3)).mean()
    torch.testing.assert_close(cost, wanted)
    torch.testing.assert_close(plain, wanted)


def test_what_is_seen_is_the_difference_from_the_mean_in_its_deviations_for_each_stacked_frame() -> None:
    sight = RunningFrameNorm(DreamerConfig(32, 1, 3, True, stack=2))
    frames = sample(1)
    for _ in range(20):
        sight.follow(frames, PLAIN)
    seen = sight(torch.cat([frames, frames.flip(0)], -1))
    assert seen.mean().abs() < 0.01
    assert abs(seen.std() - 1) < 0.05
    torch.testing.assert_close(seen[..., 0], seen[..., 1].flip(0))
    assert (sight.picture(frames.float() / 255 - sight.mean) == frames).all()
