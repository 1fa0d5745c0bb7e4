import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wm.artifacts.chained_log import chain_all
from wm.report import training_pictures
from wm.report.plots import Curve
from wm.report.training_pictures import metric_curves, reconstruction_strip


def test_curves_have_the_lines_with_their_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [{"step": 0, "validation_loss": 3.0}, {"step": 50, "loss": 2.0}, {"step": 100, "loss": 1.0}]
    (tmp_path / "metrics.jsonl").write_bytes(chain_all("", lines))
    drawn: list[Curve] = []
    monkeypatch.setattr(training_pictures, "draw", lambda curves, *labels: drawn.extend(curves) or b"png")
    assert metric_curves(tmp_path, {"training": "loss", "validation": "validation_loss"}, "V", "loss") == b"png"
    assert drawn == [Curve("training", [50, 100], [2.0, 1.0]), Curve("validation", [0], [3.0])]


def test_the_strip_ends_with_the_frames_of_the_largest_error(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = np.zeros((20, 16, 16, 3), np.uint8)
    reconstructions = frames + np.arange(20, dtype=np.uint8)[:, None, None, None] * 10
    captured = {}
    strip = training_pictures.film_strip
    monkeypatch.setattr(
        training_pictures,
        "film_strip",
        lambda *parts: captured.update(rows=parts[0], captions=parts[1]) or strip(*parts),
    )
    image = Image.open(io.BytesIO(reconstruction_strip("Pong", frames, reconstructions)))
    assert image.width > 10 * 100
    values = captured["rows"][1][1][:, 0, 0, 0] // 10
    assert values.tolist() == [8, 9, 10, 11, 12, 15, 16, 17, 18, 19]
    assert captured["captions"][-1].startswith("hardest ")
