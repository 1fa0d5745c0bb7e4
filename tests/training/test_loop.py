import math

import pytest
import torch
from torch import nn

from wm.training.loop import Trainer, cosine
from wm.training.precision import Precision

CPU = torch.device("cpu")


def make(loss_of: dict[int, float] | None = None, precision: str = "fp32", **options: float) -> Trainer:
    """A trainer of one weight; the loss of a batch in `loss_of` is multiplied by the number there."""
    torch.manual_seed(0)
    model = nn.Linear(1, 1)

    def loss(batch: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        value = model(torch.full((1, 1), 1.0 + batch)).square().sum() * (loss_of or {}).get(batch, 1.0)
        return value, {"loss": value}

    arguments = {"steps": 20, "learning_rate": 0.1, "clip": 1.0} | options
    return Trainer(model, loss, Precision(precision, CPU), **arguments)  # type: ignore[arg-type]


def weights(trainer: Trainer) -> list[float]:
    return [parameter.sum().item() for parameter in trainer.model.parameters()]


def test_the_learning_rate_falls_from_one_to_its_floor() -> None:
    assert cosine(0, 100) == 1
    assert abs(cosine(100, 100) - 0.05) < 1e-9
    assert cosine(30, 100) > cosine(60, 100)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_step_without_a_finite_loss_changes_nothing_and_is_counted(bad: float, precision: str) -> None:
    trainer = make({3: bad, 5: bad}, precision)
    for step in range(3):
        trainer.step(step)
    unchanged = weights(trainer)
    trainer.step(3)
    assert weights(trainer) == unchanged
    trainer.step(4)
    assert weights(trainer) != unchanged
    trainer.step(5)
    assert trainer.take_skipped() == (2, 3)
    assert trainer.take_skipped() == (0, -1)


def test_the_rate_is_a_factor_of_every_step() -> None:
    whole, half = make(), make()
    half.rate = 0.5
    start = weights(whole)
    whole.step(0)
    half.step(0)
    for one, two, begin in zip(weights(whole), weights(half), start, strict=True):
        assert math.isclose(two - begin, (one - begin) / 2, rel_tol=1e-4)


def test_accumulated_batches_are_one_step_on_their_mean() -> None:
    once, accumulated = make(clip=1e9), make(clip=1e9, accumulate=2)
    one, two = once._loss(0)[0], once._loss(1)[0]
    ((one + two) / 2).backward()
    once.optimizer.step()
    found = accumulated.step(0)
    for parameter, other in zip(accumulated.model.parameters(), once.model.parameters(), strict=True):
        assert torch.allclose(parameter.grad, other.grad)  # type: ignore[arg-type]
    assert weights(accumulated) == pytest.approx(weights(once), abs=1e-6)
    assert found["loss"].item() == pytest.approx((one.item() + two.item()) / 2)


def test_metrics_leave_detached() -> None:
    assert not make().step(0)["loss"].requires_grad


def test_float16_continues_with_the_scale_it_had() -> None:
    trainer = make({0: math.inf}, "fp16")
    trainer.step(0)
    again = make(precision="fp16")
    again.load_state(trainer.state())
    assert again.state() == trainer.state()
    assert again.state() != make(precision="fp16").state()
