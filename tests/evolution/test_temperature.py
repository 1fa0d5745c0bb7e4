import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from wm.evolution.cma_es import Search
from wm.evolution.temperature import FILE, choose_temperature
from wm.runtime import Runtime
from wm.settings import ControllerSettings

START = np.zeros(3, np.float32)


class AccurateAtHalf:
    """Returns in the dream have the ranks of real ones at temperature 0.5 only."""

    def __init__(self) -> None:
        self.generations = 0

    def real_returns(self, candidates: Any, generation: int) -> Any:
        self.generations += 1
        return candidates[:, 0].astype(float), 10

    def dream_returns(self, candidates: Any, generation: int, temperature: float, dreams: int) -> Any:
        return candidates[:, 0 if temperature == 0.5 else 1].astype(float)


def choose(settings: ControllerSettings, fitness: AccurateAtHalf, folder: Path, messages: list[str]) -> Any:
    runtime = Runtime(time.monotonic, log=messages.append)
    search = partial(Search, START, settings.popsize, settings.sigma, 1, settings.algo)
    return choose_temperature(runtime, settings.temperature, search, fitness, folder)  # type: ignore[arg-type]


def test_auto_chooses_the_temperature_whose_returns_rank_as_real_ones_do(tmp_path: Path) -> None:
    settings = ControllerSettings(in_="mixed", temperature="auto", popsize=8)
    fitness, messages = AccurateAtHalf(), list[str]()
    assert choose(settings, fitness, tmp_path, messages)[0] == 0.5
    assert "0.5: 1.00" in messages[-1]
    assert choose(settings, fitness, tmp_path, messages) == (0.5, 30)
    assert (tmp_path / FILE).exists()
    assert fitness.generations == 3


def test_a_number_is_used_as_it_is_and_a_real_search_needs_none(tmp_path: Path) -> None:
    for settings, expected in (
        (ControllerSettings(in_="dream", temperature="1.15"), 1.15),
        (ControllerSettings(), 1.0),
    ):
        assert choose(settings, AccurateAtHalf(), tmp_path, []) == (expected, 0)
    assert not (tmp_path / FILE).exists()
