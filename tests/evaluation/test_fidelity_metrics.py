from typing import Any

import pytest

from wm.evaluation.fidelity_metrics import format_fidelity, format_returns, summarize_fidelity


def fidelity(rho: float | None = 0.5) -> dict[str, Any]:
    interval = None if rho is None else (0.25, 0.75)
    return {
        "policies": "the controllers of its search",
        "dream": [1.0, 2.0, 3.0],
        "dream_returns": [10.0, 14.0],
        "real_returns": [-2.0, -2.0],
        "dream_lengths": [20, 30],
        "real_lengths": [100, 300],
        "dream_ended": 0.75,
        "real_ended": 1.0,
        "z_variance": {"dream": [1.0, 1.0, 3.0], "real": [4.0, 2.0, 1.0]},
        "open_loop": {"1": None},
        "events": {"rates": {"end": {"dream": 11.0, "real": 12.5, "events": 25.0}}, "warning": ""},
        "rho": rho,
        "rho_ci95": interval,
        "rho_last_third": None,
        "rho_last_third_ci95": None,
    }


def test_metrics_are_means_with_intervals_and_quantiles_of_the_variance_ratio() -> None:
    metrics = summarize_fidelity(fidelity())
    assert (metrics["dream_return"], metrics["real_return"]) == (12, -2)
    assert (metrics["dream_length"], metrics["real_length"]) == (25, 200)
    assert metrics["dream_return_ci95"] > 0
    assert metrics["real_return_ci95"] == 0
    assert metrics["z_variance_ratio"] == [0.25, 0.5, 3.0]
    assert metrics["policies"] == 3
    assert format_returns(metrics).endswith("in the dream, -2.0 ± 0.0 in real episodes")


@pytest.mark.parametrize(("rho", "text"), [(0.5, "0.50  (0.25 to 0.75)"), (None, "undefined")])
def test_the_table_fits_a_terminal_and_says_when_a_correlation_is_undefined(rho: float | None, text: str) -> None:
    lines = format_fidelity(summarize_fidelity(fidelity(rho))).splitlines()
    assert max(map(len, lines)) <= 80
    (line,) = [line for line in lines if "rank correlation" in line]
    assert line.endswith(text)


def test_the_table_tells_ends_of_dreams_in_which_c_acts_from_those_along_real_actions() -> None:
    lines = format_fidelity(summarize_fidelity(fidelity())).splitlines()
    (heading,) = [number for number, line in enumerate(lines) if "given the actions of real episodes" in line]
    assert lines[heading - 1].split() == ["share", "that", "terminated", "0.75", "1.00"]
    assert lines[heading + 1].split() == ["ends", "11", "12.5"]


def test_constant_frames_have_no_ratio_of_variances() -> None:
    metrics = summarize_fidelity(fidelity() | {"z_variance": {"dream": [], "real": []}})
    assert metrics["z_variance_ratio"] is None
    (line,) = [line for line in format_fidelity(metrics).splitlines() if "variance of z" in line]
    assert "undefined" in line
