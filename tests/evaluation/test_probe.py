import numpy as np
import pytest

from wm.evaluation.probe import FEWEST, ProbeResult, read

RANDOM = np.random.default_rng(0)


def made(rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Latents, and three labels: one that is in them, one that is not, one that does not vary."""
    z = RANDOM.normal(size=(rows, 6)).astype(np.float32)
    seen = 40 + 7 * z[:, 2] - 3 * z[:, 4] + noise * RANDOM.normal(size=rows)
    return z, np.stack([seen, RANDOM.normal(size=rows), np.full(rows, 3.0)], axis=1).astype(np.float32)


def test_what_is_in_the_latents_is_read_and_nothing_else() -> None:
    there, absent, constant = read(*made(2000, 0.0), *made(1000, 0.0))
    assert there[0] > 0.999
    assert there[1] < 0.1
    assert absent[0] < 0.05
    assert np.isnan(constant[0])
    (noisy, *_) = read(*made(4000, 58**0.5), *made(4000, 58**0.5))
    assert noisy[0] == pytest.approx(0.5, abs=0.05)
    assert noisy[1] == pytest.approx(58**0.5, rel=0.05)


def test_rows_without_the_thing_do_not_count() -> None:
    z, labels = made(500, 0.0)
    held_z, held = made(400, 0.0)
    labels[::2, 0] = held[50:, 0] = np.nan
    (found, *_) = read(z, labels, held_z, held)
    assert found[0] > 0.99
    assert found[2] == 50
    held[FEWEST - 1 :, 0] = np.nan
    assert np.isnan(read(z, labels, held_z, held)[0][0])


def test_what_cannot_be_said_is_none_in_a_manifest() -> None:
    assert ProbeResult(float("nan"), 1.0, 0.5, 3).as_json() == {"r2": None, "error": 1.0, "untrained": 0.5, "rows": 3}
