from typing import Any

import numpy as np
import pytest
import torch

from tests.stages.test_train_mdnrnn import model, world
from wm.evaluation.event_rates import event_rates, event_warning, format_event_rates
from wm.models.mdnrnn.cell import make_cell
from wm.models.mdnrnn.predictor import Predictor


def test_the_real_rates_are_those_of_the_episodes() -> None:
    rates = event_rates(model(), world(), np.ones(8, bool))
    assert 8 <= rates["end"]["events"] < 3 * 8  # every dream passes an end, but there are those of eight episodes only
    assert 1000 / 30 < rates["end"]["real"] < 1000 / 20
    assert 1000 / 49 < rates["positive"]["real"] < 1000 / 30  # not after every start
    assert rates["negative"]["real"] == 0


def test_dreams_have_the_temperature_and_the_length_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []

    def spied(network: Predictor, count: int) -> Any:
        cell = make_cell(network, count)
        advance = cell.advance

        def counted(z: torch.Tensor, action: torch.Tensor, state: Any, temperature: float, *more: Any) -> Any:
            asked.append((len(z), temperature))
            return advance(z, action, state, temperature, *more)

        monkeypatch.setattr(cell, "advance", counted)
        return cell

    monkeypatch.setattr("wm.evaluation.event_rates.make_cell", spied)
    event_rates(model(), world(), np.ones(8, bool), 0.25, 5)
    assert asked == [(5120, 0.25)] * 5  # as many steps in all as 512 dreams of 50


def test_dreams_that_end_at_once_are_warned_of() -> None:
    network = model()
    with torch.no_grad():
        network.heads.bias[-1] = 60.0
    warning = event_warning(event_rates(network, world(), np.ones(8, bool)), 1.0)
    assert "ends 1,000 instead of " in warning
    assert warning.endswith("train M longer, or on more episodes, before a policy learns in them.")


def test_a_factor_of_two_and_few_events_are_let_pass() -> None:
    rates = {
        "positive": {"dream": 6.0, "real": 10.0, "events": 250.0},
        "negative": {"dream": 4.0, "real": 1.0, "events": 9.0},
        "end": {"dream": 0.0, "real": 0.0, "events": 0.0},
    }
    assert event_warning(rates, 1.0) == ""
    assert format_event_rates(rates) == (
        "per 1,000 steps of dreams: positive rewards 6 (real 10), negative rewards 4 (real 1)"
    )
    rates["positive"]["dream"] = 4.9
    assert "Dreams at temperature 0.25 have positive rewards 4.9 instead of 10 per" in event_warning(rates, 0.25)


def test_what_happens_rarely_is_shown_and_what_never_did_is_not() -> None:
    never = {"dream": 0.03, "real": 0.0, "events": 0.1}
    rates = {"positive": {"dream": 0.0, "real": 0.0123, "events": 2.0}, "negative": never}
    assert format_event_rates(rates) == "per 1,000 steps of dreams: positive rewards 0 (real 0.0123)"
    assert format_event_rates({"end": never}) == "per 1,000 steps of dreams: neither rewards nor ends"
