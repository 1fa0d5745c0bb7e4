import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from stages.session import Session
from stages.training import train_to_best
from wm.errors import Stopped
from wm.training import metrics


def go(folder: Path, session: Session, stop_at: int = -1, losses: dict[int, float] | None = None) -> dict[str, float]:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    validations = iter(range(100))

    def loss(step: int) -> tuple[Tensor, dict[str, Tensor]]:
        if step == stop_at:
            session.stop.signal = signal.SIGTERM
        value = model(torch.ones(1, 2)).square().sum()
        return value, {"loss": value}

    def validate() -> dict[str, float]:
        number = next(validations)
        return {"validation_loss": (losses or {}).get(number, 1.0 - number / 100)}

    return train_to_best(
        session, folder, "test", model, optimizer, loss, validate, steps=20, validate_every=5, learning_rate=0.1
    )


def test_the_best_checkpoint_is_what_remains(tmp_path: Path) -> None:
    found = go(tmp_path, Session("x"), losses={0: 3.0, 1: 0.5, 2: 2.0, 3: 1.0})
    assert (found["best_step"], found["validation_loss"]) == (10, 0.5)
    assert [line["step"] for line in metrics.read(tmp_path) if "validation_loss" in line] == [5, 10, 15, 20]


def test_a_signal_saves_the_current_step_and_the_next_run_goes_on_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Stopped) as caught:
        go(tmp_path, Session("x"), stop_at=12)
    assert caught.value.exit_code == 143
    go(tmp_path, Session("x"))
    assert "goes on at step 13 of 20" in capsys.readouterr().err
    steps = [line["step"] for line in metrics.read(tmp_path) if "validation_loss" in line]
    assert steps == [5, 10, 13, 15, 20]
