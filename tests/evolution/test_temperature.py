from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.session import Session
from wm.evolution.temperature import FOUND, choose_temperature
from wm.settings import ControllerSettings

START = np.zeros(3, np.float32)


class TrueAtHalf:
    """A dream that ranks candidates as reality does at temperature 0.5 only."""

    def __init__(self) -> None:
        self.played = 0

    def real(self, candidates: Any, number: int) -> Any:
        self.played += 1
        return candidates[:, 0].astype(float), 10

    def dreamt(self, candidates: Any, number: int, temperature: float, episodes: int) -> Any:
        return candidates[:, 0 if temperature == 0.5 else 1].astype(float)


def test_the_temperature_is_the_one_that_ranks_as_reality_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ControllerSettings(in_="mixed", temperature="auto", popsize=8)
    evaluation = TrueAtHalf()
    arguments = (Session("Pong"), settings, evaluation, START, tmp_path)
    assert choose_temperature(*arguments)[0] == 0.5  # type: ignore[arg-type]
    assert "0.5: 1.00" in capsys.readouterr().err
    assert choose_temperature(*arguments) == (0.5, 30)  # type: ignore[arg-type]
    assert (tmp_path / FOUND).exists()
    assert evaluation.played == 3


def test_a_number_is_taken_as_it_is_and_reality_has_none(tmp_path: Path) -> None:
    for settings, wanted in (
        (ControllerSettings(in_="dream", temperature="1.15"), 1.15),
        (ControllerSettings(temperature="auto"), 1.0),
    ):
        assert choose_temperature(Session("Pong"), settings, TrueAtHalf(), START, tmp_path) == (wanted, 0)  # type: ignore[arg-type]
    assert not (tmp_path / FOUND).exists()
