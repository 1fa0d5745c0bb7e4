import math

import numpy as np
import pytest

from wm.envs.registry import EnvConfig
from wm.errors import BadData
from wm.evaluation.linear_probe import MIN_ROWS, ProbeResult, fit_and_score, summarize_probe

RANDOM = np.random.default_rng(0)


def make(rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Latents, and three labels: one that is in them, one that is not, one that does not vary."""
    z = RANDOM.normal(size=(rows, 6)).astype(np.float32)
    linear = 40 + 7 * z[:, 2] - 3 * z[:, 4] + noise * RANDOM.normal(size=rows)
    return z, np.stack([linear, RANDOM.normal(size=rows), np.full(rows, 3.0)], axis=1).astype(np.float32)


def test_labels_in_the_latents_are_decoded_and_no_others() -> None:
    present, absent, constant = fit_and_score(*make(2000, 0.0), *make(1000, 0.0))
    assert present[0] > 0.999
    assert present[1] < 0.1
    assert absent[0] < 0.05
    assert np.isnan(constant[0])
    (noisy, *_) = fit_and_score(*make(4000, 58**0.5), *make(4000, 58**0.5))
    assert noisy[0] == pytest.approx(0.5, abs=0.05)
    assert noisy[1] == pytest.approx(58**0.5, rel=0.05)


def test_rows_without_a_label_do_not_count() -> None:
    z, labels = make(500, 0.0)
    held_out_z, held_out = make(400, 0.0)
    labels[::2, 0] = held_out[50:, 0] = np.nan
    (score, *_) = fit_and_score(z, labels, held_out_z, held_out)
    assert score[0] > 0.99
    assert score[2] == 50
    held_out[MIN_ROWS - 1 :, 0] = np.nan
    assert np.isnan(fit_and_score(z, labels, held_out_z, held_out)[0][0])


def test_what_cannot_be_said_is_none_in_a_manifest() -> None:
    assert ProbeResult(float("nan"), 1.0, 0.5, 3).as_json() == {"r2": None, "error": 1.0, "untrained": 0.5, "rows": 3}
    for result in (ProbeResult(0.25, 1.0, 0.5, 3), ProbeResult(float("nan"), 1.0, 0.5, 3)):
        assert repr(ProbeResult.from_json(result.as_json())) == repr(result)


def results(**r2: float) -> dict[str, ProbeResult]:
    return {name: ProbeResult(value, 1.5, 0.02, 100) for name, value in r2.items()}


def test_the_worst_label_that_a_frame_shows_is_judged() -> None:
    lines: list[str] = []
    scores = results(x=0.95, y=0.97, vx=0.1, angle=math.nan)
    assert summarize_probe(scores, EnvConfig("LunarLander"), 0.9, lines.append).endswith("x 0.95, y 0.97, vx 0.10")
    assert lines == []
    summarize_probe(results(x=0.7), EnvConfig("LunarLander"), 0.5, lines.append)
    assert "decodes x with R2 0.70 (error 1.5; untrained V 0.02)" in lines.pop()
    with pytest.raises(BadData, match=r"decodes ball_x with R2 0\.30 .*, below require_probe=0\.5"):
        summarize_probe(results(ball_x=0.3, ball_y=0.9), EnvConfig("Pong"), 0.5, lines.append)


def test_a_label_that_is_not_decoded_at_all_only_warns_unless_it_is_required() -> None:
    lines: list[str] = []
    summarize_probe(results(x=-0.2), EnvConfig("LunarLander"), 0.0, lines.append)
    assert lines[0].startswith("warning: a linear probe of a sampled z decodes x with R2 -0.20")


def test_without_labels_there_is_no_summary() -> None:
    assert summarize_probe({}, EnvConfig("MountainCar-v0"), 0.0, lambda text: None) == ""


def test_what_cannot_be_probed_does_not_pass_where_a_probe_is_required() -> None:
    with pytest.raises(BadData, match="the episodes have no labels, and require_probe"):
        summarize_probe({}, EnvConfig("MountainCar-v0"), 0.9, lambda text: None)
    with pytest.raises(BadData, match="too few held-out frames, and require_probe"):
        summarize_probe(results(x=math.nan), EnvConfig("LunarLander"), 0.5, lambda text: None)


def test_labels_with_too_few_rows_are_left_out() -> None:
    lander = EnvConfig("LunarLander")
    assert summarize_probe(results(x=0.95, angle=math.nan), lander, 0.0, lambda text: None).endswith("z: x 0.95")
    assert summarize_probe(results(x=math.nan), lander, 0.0, lambda text: None) == "too few held-out frames to probe"
