import math
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from stages.session import Session
from wm.errors import BadData, Stopped
from wm.settings import GradientSettings
from wm.telemetry import metrics_log as metrics
from wm.training.fit import train_to_best
from wm.training.loop import Trainer
from wm.training.precision import Precision


def go(
    folder: Path,
    session: Session,
    stop_at: int = -1,
    losses: dict[int, float] | None = None,
    bad: Callable[[int, float], bool] = lambda step, rate: False,
    patience: int = 0,
) -> dict[str, float]:
    """Train one layer for 20 steps. `losses` are validation losses by number, `bad` says which steps have none."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    validations = iter(range(100))

    def loss(step: int) -> tuple[Tensor, dict[str, Tensor]]:
        if step == stop_at:
            session.stop.signal = signal.SIGTERM
        value = model(torch.ones(1, 2)).square().sum()
        return value * (math.nan if bad(step, trainer.rate) else 1), {"loss": value}

    def validate() -> dict[str, float]:
        number = next(validations)
        return {"validation_loss": (losses or {}).get(number, 1.0 - number / 100)}

    settings = GradientSettings(steps=20, validate_every=5, learning_rate=0.1, patience=patience)
    precision = Precision("fp32", torch.device("cpu"))
    trainer = Trainer(model, loss, precision, steps=20, learning_rate=0.1, clip=1.0)
    return train_to_best(session, folder, "test", trainer, validate, lambda batch: f"batch {batch}", settings)


def validated(folder: Path) -> list[int]:
    return [line["step"] for line in metrics.read(folder) if "validation_loss" in line]


def test_the_best_checkpoint_is_what_remains(tmp_path: Path) -> None:
    found = go(tmp_path, Session("x"), losses={1: 3.0, 2: 0.5, 3: 2.0, 4: 1.0})
    assert (found["best_step"], found["validation_loss"]) == (10, 0.5)
    assert validated(tmp_path) == [0, 5, 10, 15, 20]


def test_a_signal_saves_the_current_step_and_the_next_run_goes_on_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Stopped) as caught:
        go(tmp_path, Session("x"), stop_at=12)
    assert caught.value.exit_code == 143
    go(tmp_path, Session("x"))
    assert "goes on at step 13 of 20" in capsys.readouterr().err
    assert validated(tmp_path) == [0, 5, 10, 13, 15, 20]


def test_it_ends_when_validation_has_not_improved_for_a_while(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = go(tmp_path, Session("x"), losses={1: 0.1}, patience=2)
    assert (found["best_step"], found["steps"]) == (5, 15)
    assert "ended at step 15, 2 validations after its best" in capsys.readouterr().err
    again = go(tmp_path, Session("x"), losses={0: 0.0}, patience=2)
    assert again["steps"] == 15


def test_a_few_steps_without_a_finite_loss_are_skipped_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = go(tmp_path, Session("x"), bad=lambda step, _: step in (6, 8))
    assert found["skipped"] == 2
    assert "2 steps were skipped" in capsys.readouterr().err


def test_more_of_them_send_it_back_to_the_last_checkpoint_at_half_the_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = go(tmp_path, Session("x"), bad=lambda step, rate: step >= 10 and rate > 0.5)
    assert found["steps"] == 20
    assert "not finite in 5 steps from step 10 on (batch 10); goes back to step 10" in capsys.readouterr().err
    assert validated(tmp_path) == [0, 5, 10, 15, 20]


def test_if_half_the_rate_does_not_help_the_batch_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"in 5 steps from step 10 on \(batch 10\), at half the learning rate too"):
        go(tmp_path, Session("x"), bad=lambda step, _: step >= 10)
    with pytest.raises(BadData, match="the validation loss is nan at step 5"):
        go(tmp_path / "other", Session("x"), losses={1: math.nan})


def test_no_validation_stands_twice_after_a_failure_before_the_first_checkpoint_but_one(tmp_path: Path) -> None:
    with pytest.raises(BadData):
        go(tmp_path, Session("x"), losses={1: math.nan})
    go(tmp_path, Session("x"))
    assert validated(tmp_path) == [0, 5, 10, 15, 20]
