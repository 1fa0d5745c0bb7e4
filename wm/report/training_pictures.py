"""Pictures of a training: loss curves and reconstructions."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wm.artifacts import durable
from wm.report.film_strip import error_map, film_strip
from wm.report.plots import Curve, draw
from wm.runtime import Runtime
from wm.telemetry import metrics_log, tensorboard

MDNRNN_LOSSES = {
    "paper": ("nll", "NLL of the next z, per dimension (nats)"),
    "rollout": ("rollout", "Huber loss of z along M's rollouts, in deviations of a step's change"),
}
COLUMNS = 5  # typical frames, and as many of those with the largest error


def metric_curves(folder: Path, columns: Mapping[str, str], title: str, axis: str, x_axis: str = "step") -> bytes:
    """A PNG with curves of the metrics in a folder; `columns` maps a curve's name to its column."""
    lines = metrics_log.read(folder)
    curves = []
    for name, column in columns.items():
        rows = [line for line in lines if column in line]
        curves.append(Curve(name, [line["step"] for line in rows], [line[column] for line in rows]))
    return draw(curves, title, x_axis, axis)


def reconstruction_strip(env: str, frames: NDArray[np.uint8], reconstructions: NDArray[np.uint8]) -> bytes:
    """A PNG of frames with a typical error and of those with the largest, each above its reconstruction."""
    error = np.square((frames.astype(np.float32) - reconstructions) / 255).sum(axis=(1, 2, 3))
    order = np.argsort(error, kind="stable")
    middle = len(order) // 2
    typical = order[max(middle - COLUMNS // 2, 0) : middle + COLUMNS // 2 + 1][:COLUMNS]
    hardest = order[-COLUMNS:]
    subset = np.concatenate([typical, hardest])
    captions = [f"typical {error[i]:.1f}" for i in typical] + [f"hardest {error[i]:.1f}" for i in hardest]
    rows = [
        ("real", frames[subset]),
        ("V", reconstructions[subset]),
        ("error x 4", error_map(frames[subset], reconstructions[subset])),
    ]
    return film_strip(rows, captions, f"{env}: reconstructions of held-out frames, with their squared error")


def save_vae_pictures(
    runtime: Runtime, folder: Path, env: str, step: int, frames: NDArray[np.uint8], reconstructions: NDArray[np.uint8]
) -> None:
    """Write reconstructions.png, of which the Runtime's trackers are told, and loss.png with the curves of V's
    losses."""
    strip = reconstruction_strip(env, frames, reconstructions)
    durable.write_bytes(folder / "reconstructions.png", strip)
    tensorboard.add_image(runtime, folder, step, "reconstructions", strip)
    columns = {"training": "loss", "validation": "validation_loss"}
    durable.write_bytes(folder / "loss.png", metric_curves(folder, columns, f"{env}: V", "loss (nats)"))


def save_mdnrnn_picture(folder: Path, env: str, network: str) -> None:
    """Write loss.png with the curves of M's negative log-likelihoods, or of the losses of its rollouts."""
    column, axis = MDNRNN_LOSSES[network]
    columns = {"training": column, "validation": f"validation_{column}"}
    durable.write_bytes(folder / "loss.png", metric_curves(folder, columns, f"{env}: M", axis))
