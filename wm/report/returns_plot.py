"""Returns over the generations of a search."""

import numpy as np

from wm.evolution.history import History
from wm.report.plots import Curve, draw
from wm.stats import Score


def draw_returns(history: History, env: str, validated_in: str) -> bytes:
    """A PNG with mean and range of the candidates' returns, and the validated means with their intervals.
    `validated_in` is real or dream."""
    curves = []
    for place in ("dream", "real"):
        lines = [line for line in history.lines if line["in"] == place]
        if lines:
            curves.append(
                Curve(
                    f"candidates, mean and range ({place})",
                    [line["generation"] for line in lines],
                    [float(np.mean(line["returns"])) for line in lines],
                    [float(np.min(line["returns"])) for line in lines],
                    [float(np.max(line["returns"])) for line in lines],
                )
            )
    scores = [Score.of(np.array(line["validation"])) for line in history.validated]
    validated = Curve(
        f"validated mean, 95 % interval ({validated_in})",
        [line["generation"] for line in history.validated],
        [score.mean for score in scores],
        [score.mean - score.ci95 for score in scores],
        [score.mean + score.ci95 for score in scores],
    )
    return draw([*curves, validated], f"{env}: C", "generation", "return per episode")
