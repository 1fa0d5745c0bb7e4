"""The training loop: it only loops. Logging, validation and checkpoints live outside it."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from wm.errors import BadData


def cosine(step: int, steps: int, floor: float = 0.05) -> float:
    """Factor of the learning rate at `step`: from 1 down to `floor`."""
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * step / steps))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[int], tuple[Tensor, dict[str, Tensor]]],
    *,
    start: int,
    stop: int,
    learning_rate: float,
    clip: float | None = None,
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Yield (steps done, detached metrics) after every step from `start` to `stop`.

    `loss(step)` returns the scalar to minimise and metrics; it decides the batch by the step alone. Raises BadData
    naming the step when the loss is not finite, before the weights are touched.
    """
    for step in range(start, stop):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * cosine(step, stop)
        total, metrics = loss(step)
        if not math.isfinite(total.item()):
            raise BadData(f"the loss is {total.item()} at step {step}; lower the learning rate with --set.")
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        yield step + 1, {name: value.detach() for name, value in metrics.items()}
