"""One step of gradient descent, and a count of the steps without a finite loss; `fit.py` logs, validates and saves.

A step whose loss or gradient is not finite is skipped: it changes nothing but a counter, which stays on the device.
Nothing waits for the device until `take_skipped` is called.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from wm.artifacts.json_reader import COUNT, NUMBER, Schema, table
from wm.training.pieces import PieceGradients
from wm.training.precision import Precision

Values = tuple[Tensor, dict[str, Tensor]]
Loss = Callable[[int], Values]
_SCALER = table(
    dict.fromkeys(("scale", "growth_factor", "backoff_factor"), NUMBER)
    | dict.fromkeys(("growth_interval", "_growth_tracker"), COUNT)
)


# A twentieth at the end and not zero, so that the last steps still learn.
def cosine(step: int, steps: int, floor: float = 0.05) -> float:
    """Factor of the learning rate at `step`: from 1 down to `floor`."""
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * step / steps))


def _scaler(value: Any, key: str) -> None:
    """The schema of a GradScaler's state, which is empty where the loss is not scaled."""
    if value != {}:
        _SCALER(value, key)


class Trainer:
    """Adam on a model. `loss(number)` returns the scalar to minimise, and metrics, of the batch with this number. With
    `pieces` the gradient of every batch is the sum of its pieces', whose losses they know.

    `accumulate` batches are a step. `rate` is a factor of the learning rate, 1 unless training returned to a
    checkpoint. Gradients are clipped by their norm, that of each of `parts` apart.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        precision: Precision,
        *,
        steps: int,
        learning_rate: float,
        clip: float,
        accumulate: int = 1,
        parts: Sequence[nn.Module] = (),
        pieces: PieceGradients | None = None,
    ) -> None:
        self.model, self.steps, self.learning_rate = model, steps, learning_rate
        self.rate = 1.0
        self._parts = [list(part.parameters()) for part in parts or [model]]
        self._loss, self._precision, self._clip, self.accumulate = loss, precision, clip, accumulate
        self._pieces = pieces
        self.optimizer = torch.optim.Adam(model.parameters(), learning_rate, fused=True)
        self._scaler = torch.amp.GradScaler(precision.device.type, enabled=precision.scaled)
        self._skipped = torch.zeros((), dtype=torch.int64, device=precision.device)
        self._first_skipped = torch.full_like(self._skipped, -1)

    def step(self, step: int) -> dict[str, Tensor]:
        """Take step number `step` (from 0); returns detached metrics, means over its batches."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * self.rate * cosine(step, self.steps)
        # None instead of zeros: a parameter without a gradient then keeps its moments, and no memory is written.
        self.optimizer.zero_grad(set_to_none=True)
        numbers = range(step * self.accumulate, (step + 1) * self.accumulate)
        if self._pieces is not None:
            means = self._pieces.add_up(self.model, numbers, self._backward)
        else:
            batches = [self._backward(self._loss, number) for number in numbers]
            means = {name: torch.stack([batch[name] for batch in batches]).mean() for name in batches[0]}
        self._update(step, means.pop("total"))
        return means

    def _backward(self, loss: Callable[..., Values], *batch: Any) -> dict[str, Tensor]:
        """Add to the gradients those of a batch's loss, or of a piece's; returns that loss as `total`, and metrics."""
        with self._precision.cast():
            total, metrics = loss(*batch)
        self._scaler.scale(total / self.accumulate).backward()
        return {"total": total.detach()} | {name: value.detach() for name, value in metrics.items()}

    def _update(self, step: int, total: Tensor) -> None:
        self._scaler.unscale_(self.optimizer)
        norm = torch.stack([nn.utils.clip_grad_norm_(part, self._clip) for part in self._parts]).sum()
        # The scaler lets a gradient overflow now and then to find its scale; that is no fault of the model.
        bad = ~torch.isfinite(total if self._precision.scaled else total + norm)
        self._first_skipped = torch.where(bad & (self._skipped == 0), step, self._first_skipped)
        # Added on the device: reading it here would wait for it at every step.
        self._skipped += bad
        if not self._precision.scaled:
            # Adam's fused step skips itself where found_inf is 1; without a GradScaler nothing else sets it.
            self.optimizer.grad_scale, self.optimizer.found_inf = None, bad.float()  # type: ignore[attr-defined]
        self._scaler.step(self.optimizer)
        self._scaler.update()

    def take_skipped(self) -> tuple[int, int]:
        """The number of steps skipped since the last call, and the first of them (-1: none). Waits for the device."""
        count, first = int(self._skipped.item()), int(self._first_skipped.item())
        self._skipped.zero_()
        self._first_skipped.fill_(-1)
        return count, first

    @property
    def state_schema(self) -> Schema:
        """Of what `state` returns."""
        return table({"rate": NUMBER, "scaler": _scaler})

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs besides weights and optimizer, as plain values."""
        return {"rate": self.rate, "scaler": self._scaler.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.rate = float(state["rate"])
        if state["scaler"] and self._precision.scaled:
            self._scaler.load_state_dict(state["scaler"])
