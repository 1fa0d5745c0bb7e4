from typing import Any

import pytest
import torch

from tests.models.test_dreamer import SMALL
from tests.models.test_rarity import sample
from wm.models.dreamer.picture import PLAIN, Drawing, PictureError


def follow(drawing: Drawing, batches: int = 40) -> tuple[PictureError, torch.Tensor]:
    """What has seen a dot that moves about, and the mean picture."""
    error, frames = PictureError(SMALL), sample(1)
    mean = (frames.float() / 255 - 0.5).mean(0)
    for number in range(batches):
        some = frames[torch.randperm(64, generator=torch.Generator().manual_seed(number))[:16]]
        error(mean.expand(16, -1, -1, -1), some, drawing)
    return error, mean


@pytest.mark.parametrize("rarity", [0.0, 0.5])
def test_always_showing_the_mean_picture_costs_the_nats_that_are_asked_for(rarity: float) -> None:
    drawing = Drawing(1.0, 200.0, rarity)
    error, mean = follow(drawing)
    cost, plain = error(mean.expand(64, -1, -1, -1), sample(1), drawing)
    assert 0.8 < cost.item() / 200 < 1.25
    assert abs(plain.item() - 1) < 0.1  # a dot of one pixel from 0 to 1


def test_a_small_thing_that_moves_counts_more_than_as_large_an_error_of_what_is_always_the_same() -> None:
    costs = {}
    for rarity in (0.0, 0.5):
        drawing = Drawing(1.0, 200.0, rarity)
        error, _ = follow(drawing)
        frames = sample(1)
        right = frames.float() / 255 - 0.5
        dot = frames > 0
        missed, smeared = torch.where(dot, -0.5, right), torch.where(dot, right, right + 1 / 32)
        costs[rarity] = error(missed, frames, drawing)[0].item() / error(smeared, frames, drawing)[0].item()
    assert 0.9 < costs[0.0] < 1.1
    assert costs[0.5] > 5


def test_plain_is_the_summed_squared_error() -> None:
    error, drawn = PictureError(SMALL), torch.rand(64, 32, 32, 1) - 0.5
    cost, plain = error(drawn, sample(1), PLAIN)
    wanted: Any = (drawn - (sample(1).float() / 255 - 0.5)).square().sum((1, 2, 3)).mean()
    torch.testing.assert_close(cost, wanted)
    torch.testing.assert_close(plain, wanted)
