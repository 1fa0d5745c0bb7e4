"""What the two gradient stages share: resume, loop, validate, log, stop, publish the best."""

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from stages import console
from stages.session import Session
from wm.artifacts.runs import SCRATCH
from wm.training.checkpoint import Checkpoints
from wm.training.loop import train
from wm.training.metrics import MetricsLog

LOG_EVERY = 50


def train_to_best(
    session: Session,
    folder: Path,
    label: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[int], tuple[Tensor, dict[str, Tensor]]],
    validate: Callable[[], dict[str, float]],
    *,
    steps: int,
    validate_every: int,
    learning_rate: float,
    clip: float | None = None,
) -> dict[str, float]:
    """Train to `steps` from the last checkpoint in `folder`, leaving the best weights in `model`.

    `validate()["validation_loss"]` is the score. Returns the figures of the best checkpoint and the speed. On Stopped
    the current step is saved first.
    """
    checkpoints = Checkpoints(folder / SCRATCH, model, optimizer)
    start = checkpoints.resume()
    if start:
        console.say(f"{label}: goes on at step {start} of {steps}")
    log = MetricsLog(folder, start)
    began, last = time.monotonic(), start
    with console.progress(label, steps, "steps", start) as progress:
        figures: dict[str, float] = {}
        running = train(model, optimizer, loss, start=start, stop=steps, learning_rate=learning_rate, clip=clip)
        for step, metrics in running:
            if step % LOG_EVERY == 0 or step == steps:
                figures = {name: value.item() for name, value in metrics.items()}
                log.write(step, figures)
            stopping = session.stop.signal is not None and step < steps
            if step % validate_every == 0 or step == steps or stopping:
                scores = validate()
                log.write(step, scores)
                checkpoints.save(step, scores)
            if stopping:
                log.close()
                session.stop.raise_if_stopped()
            progress.update(step, **{name: f"{value:.4g}" for name, value in figures.items()})
            last = step
    log.close()
    best = checkpoints.load_best()
    speed = (last - start) / max(time.monotonic() - began, 1e-9)
    return {"best_step": best.step, "steps_per_second": round(speed, 2), **best.scores}
