"""Open-loop prediction: from actions alone, after the context."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.models.test_dreamer import SMALL, batch, dreamer, noise
from wm.actions import ActionSpace
from wm.dreamer.open_loop import OpenLoop, _correlation, format_errors, predict, replay_strip
from wm.dreamer.replay_store import replay_buffer


def test_predictions_depend_on_context_frames_and_actions_but_not_on_later_frames() -> None:
    model, steps, context = dreamer(), batch(), 2
    features, rewards = predict(model, steps, context, noise())
    assert features.shape == (3, 4, SMALL.feature_width)
    assert rewards.shape == (3, 4)

    def changed(name: str, rows: slice) -> bool:
        column = getattr(steps, name).clone()
        column[:, rows] = 1 - column[:, rows]
        other, _ = predict(model, steps._replace(**{name: column}), context, noise())
        return not torch.equal(features, other)

    assert not changed("frames", slice(context, None))
    assert changed("frames", slice(0, context))
    assert changed("actions", slice(context, None))


def test_a_strip_needs_a_window_within_one_episode() -> None:
    random = np.random.default_rng(0)
    for length, drawn in ((3, False), (30, True)):
        buffer = replay_buffer(1, 60, SMALL, ActionSpace(count=3))
        for number in range(60):
            frame = random.integers(0, 256, (32, 32, 1), np.uint8)
            if number % length:
                buffer.add_step(0, frame, 0, 0.0, False)
            else:
                buffer.start_episode(0, frame, number)
        assert (replay_strip(dreamer(), buffer) is not None) == drawn


def test_a_correlation_needs_three_pairs_that_vary() -> None:
    assert _correlation(np.zeros((0, 2))) is None
    assert _correlation(np.array([[1.0, 2], [2, 3]])) is None
    assert _correlation(np.array([[1.0, 2], [2, 2], [3, 2]])) is None
    assert _correlation(np.array([[1.0, 2], [2, 4], [3, 6]])) == pytest.approx(1)


def test_the_animation_has_a_frame_for_every_predicted_step(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), np.uint8)
    OpenLoop({}, frames, frames[::-1], 3).write(tmp_path)
    with Image.open(tmp_path / "dream.gif") as movie, Image.open(tmp_path / "dream.png") as strip:
        assert movie.n_frames == 9  # type: ignore[attr-defined]
        assert strip.width > 8 * 100


def test_errors_are_reported_for_the_horizons_that_episodes_reach() -> None:
    metrics = {"open_loop": {"1": {"dream": 2.0, "persistence": 3.0}, "5": None, "15": None, "50": None}}
    assert format_errors(metrics | {"reward_correlation": None}).endswith("1 ahead 2.0 (3.0)")
    assert format_errors(metrics | {"reward_correlation": 0.5}).endswith("rewards correlate by 0.50")
    no_errors = {"open_loop": dict.fromkeys(metrics["open_loop"]), "reward_correlation": None}
    assert format_errors(no_errors).endswith("episodes are too short")
