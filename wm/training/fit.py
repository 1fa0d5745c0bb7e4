"""The training loop of V and M: resume, step, validate, log, checkpoint, and restore the best weights."""

import math
import signal
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from wm.errors import BadData, MemoryProblem, MissingPackage, Stopped
from wm.ranks import Ranks
from wm.runtime import Runtime
from wm.settings import GradientSettings
from wm.telemetry.memory_guard import MemoryGuard, memory_exceeded
from wm.telemetry.metrics_log import MetricsLog
from wm.telemetry.usage import optimizer_bytes
from wm.training.checkpoint import Checkpoints
from wm.training.loop import Loss, Trainer
from wm.training.orders import Orders, obey
from wm.training.pieces import PieceGradients, PieceLoss
from wm.training.precision import Precision, allow_tf32, pick

F = TypeVar("F", bound=Callable[..., Any])

# Steps between lines of metrics, for reading them waits for the device.
LOG_EVERY = 50
WARM_UP_STEPS, TIMED_STEPS = 3, 7  # of an estimate
MAX_SKIPPED = 3  # steps without a finite loss between two log lines, above which training returns to its checkpoint


def pick_precision(name: str, device: torch.device, model: nn.Module, *, tf32: bool = True) -> Precision:
    """The number format of a training, with TF32 set accordingly. Raises UsageProblem for one that the device does not
    support, or has no LSTM in where the model has one."""
    allow_tf32(tf32, device)
    precision = pick(name, device)
    if any(isinstance(module, nn.LSTM) for module in model.modules()):
        precision.require_lstm()
    return precision


def compile_if_asked(function: F, asked: bool) -> F:
    """The function, compiled by torch.compile if that is asked. It raises MissingPackage where torch cannot compile,
    as without a C++ compiler."""
    if not asked:
        return function
    compiled = torch.compile(function)

    def guarded(*arguments: Any) -> Any:
        try:
            return compiled(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            # The first line: dynamo appends a page of advice.
            reason = str(error).strip().splitlines()[0]
            raise MissingPackage(f"torch.compile does not work here ({reason}); leave compile out.") from None

    return guarded  # type: ignore[return-value]


def make_trainer(
    model: nn.Module,
    loss: Loss,
    precision: Precision,
    settings: GradientSettings,
    parts: Sequence[nn.Module] = (),
    pieces: PieceGradients | None = None,
) -> Trainer:
    """A Trainer with these settings, which clips the gradients of each part by themselves."""
    return Trainer(
        model, loss, precision, steps=settings.steps, learning_rate=settings.learning_rate, clip=settings.clip,
        accumulate=settings.accumulate, parts=parts, pieces=pieces,
    )  # fmt: skip


def pieces_of(loss: PieceLoss, count: int, ranks: Ranks | None) -> PieceGradients | None:
    """So many pieces of every batch, which the processes of a training share; None for whole batches."""
    return None if count == 1 and ranks is None else PieceGradients(loss, count, ranks)


def seconds_per_step(clock: Callable[[], float], trainer: Trainer) -> float:
    """The median time of a few steps, after those in which kernels are selected and memory is allocated."""
    seconds = []
    for step in range(WARM_UP_STEPS + TIMED_STEPS):
        start = clock()
        trainer.step(step)
        trainer.take_skipped()  # waits for the device
        seconds.append(clock() - start)
    return statistics.median(seconds[WARM_UP_STEPS:])


def fit(
    runtime: Runtime,
    folder: Path,
    label: str,
    trainer: Trainer,
    validate: Callable[[], dict[str, float]],
    describe_batch: Callable[[int], str],
    settings: GradientSettings,
    buffers: Callable[[], int] = lambda: 0,
) -> dict[str, float]:
    """Train from the last checkpoint in `folder`, leaving the best weights in the model.

    `validate()["validation_loss"]` is the score; after `settings.patience` validations without a better one training
    ends. `describe_batch(number)` is for error messages, `buffers` returns the bytes of the data in memory. Returns the
    scores of the best checkpoint and the speed, and what earlier sessions took of a training that was resumed. On
    Stopped, and on MemoryProblem, the current step is saved first. Raises BadData if the loss is not finite at half the
    learning rate either. Of several processes the first one does all this, and the others take its steps: in them
    PartDone is raised at the end.
    """
    if runtime.ranks is not None and not runtime.ranks.leads:
        obey(runtime.ranks, trainer, runtime.stop_requested, lambda: memory_exceeded(runtime))
    orders = Orders(runtime.ranks)
    with orders.training():
        return _Fit(runtime, folder, label, trainer, validate, describe_batch, settings, buffers, orders).run()


class _Fit:
    def __init__(
        self,
        runtime: Runtime,
        folder: Path,
        label: str,
        trainer: Trainer,
        validate: Callable[[], dict[str, float]],
        describe_batch: Callable[[int], str],
        settings: GradientSettings,
        buffers: Callable[[], int],
        orders: Orders,
    ) -> None:
        self._runtime, self._folder, self._label, self._trainer = runtime, folder, label, trainer
        self._orders = orders
        self._validate, self._describe_batch, self._settings = validate, describe_batch, settings
        self._bytes = lambda: buffers() + optimizer_bytes(trainer.optimizer)
        self._checkpoints = Checkpoints(folder, trainer)
        self._guard = MemoryGuard(runtime, folder, settings.steps)
        resumed = bool(self._checkpoints.all())
        self._step = self._first_step = self._checkpoints.resume()
        orders.load(trainer)
        self._open_log(self._step if resumed else -1)
        self._earlier_seconds = self._log.earlier_seconds
        if self._step:
            runtime.log(f"{label}: resumes at step {self._step} of {settings.steps}")
        if not resumed:
            self._validate_and_save()

    def run(self) -> dict[str, float]:
        """Train to the end."""
        start = self._runtime.clock()
        try:
            self._train()
        finally:
            self._log.close()
        return self._results(max(self._runtime.clock() - start, 1e-9))

    def _train(self) -> None:
        settings, figures = self._settings, dict[str, float]()
        with self._runtime.progress(self._label, settings.steps, "steps", self._step) as progress:
            while self._step < settings.steps and not self._out_of_patience():
                metrics, others = self._orders.take_step(self._trainer, self._step)
                self._step += 1
                stopping = (self._runtime.stop_requested() or others.stopping) and self._step < settings.steps
                alarm = ""
                due = self._step % settings.validate_every == 0 or self._step == settings.steps
                if due or stopping or others.exceeding or self._step % LOG_EVERY == 0:
                    count, first = self._trainer.take_skipped()
                    if count > MAX_SKIPPED:
                        self._return_to_checkpoint(first, count)
                        continue
                    self._skipped += count
                    figures = {name: value.item() for name, value in metrics.items()}
                    alarm = self._guard.check(self._write(figures), others.exceeding)
                if due:
                    self._validate_and_save()
                elif stopping or alarm:
                    self._checkpoints.save(self._step, self._checkpoints.best().scores)  # its equal, so it stays best
                if alarm:
                    raise MemoryProblem(f"{self._label}: {alarm}")
                if stopping:
                    # Raised after the checkpoint: the signal must not lose the steps since the last one.
                    self._runtime.raise_if_stopped()
                    raise Stopped(signal.SIGTERM)  # it has reached another process of torchrun alone
                progress.update(self._step, **{name: f"{value:.4g}" for name, value in figures.items()})

    def _results(self, seconds: float) -> dict[str, float]:
        if self._skipped:
            self._runtime.log(f"{self._label}: {self._skipped} steps were skipped because their loss was not finite")
        if self._step < self._settings.steps:
            self._runtime.log(
                f"{self._label}: ended at step {self._step}, {self._settings.patience} validations after its best"
            )
        best = self._checkpoints.load_best()
        speed = round((self._step - self._first_step) / seconds, 2)
        figures = {"best_step": best.step, "steps": self._step, "skipped": self._skipped, "steps_per_second": speed}
        figures |= {"earlier_seconds": self._earlier_seconds} if self._earlier_seconds else {}
        ranks = {"ranks": self._runtime.ranks.count} if self._runtime.ranks is not None else {}
        return {**figures, **ranks, **best.scores}

    def _open_log(self, step: int) -> None:
        runtime = self._runtime
        self._log = MetricsLog(self._folder, step, self._bytes, runtime.log, runtime.track, runtime.clock)
        self._skipped = int(self._log.last.get("skipped", 0))  # those of the steps that are kept

    def _write(self, figures: dict[str, float]) -> dict[str, float]:
        """A line of the log, with the steps skipped so far: a training that resumes counts on."""
        return self._log.write(self._step, figures | ({"skipped": self._skipped} if self._skipped else {}))

    def _validate_and_save(self) -> None:
        scores = self._validate()
        if not math.isfinite(scores["validation_loss"]):
            raise BadData(
                f"{self._label}: the validation loss is {scores['validation_loss']} at step {self._step}; `wm verify` "
                "checks the data, and --set learning_rate=... lowers the learning rate."
            )
        self._write(scores)
        self._checkpoints.save(self._step, scores)

    def _out_of_patience(self) -> bool:
        """Whether the validations since the best one have used up the patience."""
        if not self._settings.patience or self._step % self._settings.validate_every:
            return False
        return self._step - self._checkpoints.best().step >= self._settings.patience * self._settings.validate_every

    def _return_to_checkpoint(self, first: int, count: int) -> None:
        """Load the last checkpoint and halve the learning rate, once."""
        batch = self._describe_batch(first * self._trainer.accumulate)
        problem = f"the loss or its gradient is not finite in {count} steps from step {first} on ({batch})"
        if self._trainer.rate < 1:
            raise BadData(
                f"{self._label}: {problem}, at half the learning rate too; `wm verify` checks the data, and --set "
                "learning_rate=... lowers the learning rate."
            )
        self._step = self._checkpoints.resume()
        # Half the rate, once: if that does not help either, training ends (decision 0019).
        self._trainer.rate = 0.5
        self._orders.load(self._trainer)
        self._runtime.log(f"{self._label}: {problem}; resumes from step {self._step} at half the learning rate")
        self._log.close()
        self._open_log(self._step)
