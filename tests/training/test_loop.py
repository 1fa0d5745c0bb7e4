import pytest
import torch
from torch import nn

from wm.errors import BadData
from wm.training.loop import cosine, train


def test_the_learning_rate_falls_from_one_to_its_floor() -> None:
    assert cosine(0, 100) == 1
    assert abs(cosine(100, 100) - 0.05) < 1e-9
    assert cosine(30, 100) > cosine(60, 100)


def test_a_loss_that_is_not_finite_stops_before_the_weights_are_touched() -> None:
    model = nn.Linear(1, 1)
    before = model.weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    with pytest.raises(BadData, match="the loss is nan at step 3"):
        list(
            train(
                model, optimizer, lambda _: (model.weight.sum() * float("nan"), {}), start=3, stop=9, learning_rate=1.0
            )
        )
    assert torch.equal(model.weight, before)


def test_metrics_leave_detached() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss(step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        value = model(torch.ones(1, 1)).sum()
        return value, {"loss": value}

    for _, metrics in train(model, optimizer, loss, start=0, stop=2, learning_rate=0.1):
        assert not metrics["loss"].requires_grad
