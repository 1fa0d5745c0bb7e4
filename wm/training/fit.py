"""What the two gradient stages share: resume, loop, validate, log, go back, stop, publish the best."""

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from stages import console
from stages.session import Session
from wm.artifacts.runs import SCRATCH
from wm.errors import BadData, MemoryProblem, UsageProblem
from wm.settings import GradientSettings
from wm.telemetry.memory_guard import MemoryGuard
from wm.telemetry.metrics_log import MetricsLog
from wm.telemetry.usage import optimizer_bytes
from wm.training.checkpoint import Checkpoints
from wm.training.loop import Loss, Trainer
from wm.training.precision import Precision, allow_tf32, pick

F = TypeVar("F", bound=Callable[..., Any])

LOG_EVERY = 50
WARM_STEPS, TIMED_STEPS = 3, 7  # of an estimate
MOST_SKIPPED = 3  # steps without a finite loss between two looks, beyond which training goes back


def pick_precision(settings: GradientSettings, device: torch.device) -> Precision:
    """The number format of a training, with TF32 set as asked."""
    allow_tf32(settings.tf32, device)
    return pick(settings.precision, device)


def compiled(function: F, settings: GradientSettings) -> F:
    """The function, by torch.compile if that is asked for."""
    if not settings.compile:
        return function
    made = torch.compile(function)

    def guarded(*arguments: Any) -> Any:
        try:
            return made(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            why = str(error).strip().splitlines()[0]
            raise UsageProblem(f"--compile does not work here ({why}); leave it out.") from None

    return guarded  # type: ignore[return-value]


def seconds_per_step(model: nn.Module, loss: Loss, settings: GradientSettings, device: torch.device) -> float:
    """What a step takes: the median of a few, after those in which kernels are chosen and memory is found."""
    trainer = Trainer(
        model, loss, pick_precision(settings, device), steps=settings.steps, learning_rate=settings.learning_rate,
        clip=settings.clip, accumulate=settings.accumulate,
    )  # fmt: skip
    took = []
    for step in range(WARM_STEPS + TIMED_STEPS):
        began = time.monotonic()
        trainer.step(step)
        trainer.take_skipped()  # waits for the device
        took.append(time.monotonic() - began)
    return statistics.median(took[WARM_STEPS:])


def train_to_best(
    session: Session,
    folder: Path,
    label: str,
    trainer: Trainer,
    validate: Callable[[], dict[str, float]],
    about: Callable[[int], str],
    settings: GradientSettings,
    buffers: Callable[[], int] = lambda: 0,
) -> dict[str, float]:
    """Train from the last checkpoint in `folder`, leaving the best weights in the model.

    `validate()["validation_loss"]` is the score; after `settings.patience` validations without a better one training
    ends. `about(number)` tells what is in a batch, `buffers` how many bytes of data are held. Returns the figures of
    the best checkpoint and the speed. On Stopped, and on MemoryProblem, the current step is saved first. Raises
    BadData if the loss is not finite even at half the rate.
    """
    checkpoints = Checkpoints(folder / SCRATCH, trainer)
    begun = bool(checkpoints.points())
    step = start = checkpoints.resume()
    if start:
        console.say(f"{label}: goes on at step {start} of {settings.steps}")
    guard = MemoryGuard(session.runtime, folder, settings.steps)

    def held() -> int:
        return buffers() + optimizer_bytes(trainer.optimizer)

    log = MetricsLog(folder, start if begun else -1, held)

    def save() -> None:
        scores = validate()
        if not math.isfinite(scores["validation_loss"]):
            raise BadData(
                f"{label}: the validation loss is {scores['validation_loss']} at step {step}; `wm verify` checks the "
                "data, and --set learning_rate=... lowers the rate."
            )
        log.write(step, scores)
        checkpoints.save(step, scores)

    if not begun:
        save()
    began, skipped = time.monotonic(), 0
    with console.progress(label, settings.steps, "steps", start) as progress:
        figures: dict[str, float] = {}
        while step < settings.steps and not _ended(checkpoints, step, settings):
            metrics = trainer.step(step)
            step += 1
            stopping, alarm = session.stop.signal is not None and step < settings.steps, ""
            due = step % settings.validate_every == 0 or step == settings.steps or stopping
            if due or step % LOG_EVERY == 0:
                count, first = trainer.take_skipped()
                if count > MOST_SKIPPED:
                    step = _go_back(label, trainer, checkpoints, first, count, about)
                    log.close()
                    log = MetricsLog(folder, step, held)
                    continue
                skipped += count
                figures = {name: value.item() for name, value in metrics.items()}
                alarm = guard.look(log.write(step, figures))
            if due or alarm:
                save()
            if alarm:
                log.close()
                raise MemoryProblem(f"{label}: {alarm}")
            if stopping:
                log.close()
                session.stop.raise_if_stopped()
            progress.update(step, **{name: f"{value:.4g}" for name, value in figures.items()})
    log.close()
    if skipped:
        console.say(f"{label}: {skipped} steps were skipped because their loss was not finite")
    if step < settings.steps:
        console.say(f"{label}: ended at step {step}, {settings.patience} validations after its best")
    seconds, last = max(time.monotonic() - began, 1e-9), step
    best = checkpoints.load_best()
    speed = round((last - start) / seconds, 2)
    return {"best_step": best.step, "steps": last, "skipped": skipped, "steps_per_second": speed, **best.scores}


def _ended(checkpoints: Checkpoints, step: int, settings: GradientSettings) -> bool:
    """Whether the validations since the best one have used up the patience."""
    if not settings.patience or step % settings.validate_every:
        return False
    return step - checkpoints.best().step >= settings.patience * settings.validate_every


def _go_back(
    label: str, trainer: Trainer, checkpoints: Checkpoints, first: int, count: int, about: Callable[[int], str]
) -> int:
    """Load the last checkpoint and halve the rate, once. Returns its step."""
    batch = about(first * trainer.accumulate)
    told = f"the loss or its gradient is not finite in {count} steps from step {first} on ({batch})"
    if trainer.rate < 1:
        raise BadData(
            f"{label}: {told}, at half the learning rate too; `wm verify` checks the data, and --set "
            "learning_rate=... lowers the rate."
        )
    step = checkpoints.resume()
    trainer.rate = 0.5
    console.say(f"{label}: {told}; goes back to step {step} and on at half the learning rate")
    return step
