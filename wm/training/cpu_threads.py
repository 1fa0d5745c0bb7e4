"""V's and M's losses on several cores of a CPU: each thread computes the gradient of its share of a batch's rows.

torch's own threads share every operation and wait for each other after each, in oneDNN's convolutions by spinning. On
two cores, one of them busy, V then trained at an eighth of the speed of one thread, and on two idle cores M at half of
it. Shares of rows wait for each other once a step (docs/research/LOG.md, 2026-11-27). `pieces.py` adds up those of
several processes, with the same bits for any number of them; here the bits depend on the number of threads.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from wm.episodes.pieces import Piece
from wm.training.precision import Precision

Share = Callable[..., Any]


@contextmanager
def threaded_on_cpu(
    model: nn.Module,
    loss: Callable[..., Any],
    share: Share,
    precision: Precision,
    *,
    most_threads: int,
    pieces: int,
) -> Iterator[Callable[..., Any]]:
    """`loss` by as many threads as torch has on a CPU, at most `most_threads`. `share(piece, *arguments)` returns the
    share that a piece of the arguments' rows has of the loss: over all pieces they add up.

    A batch in several `pieces` is computed by one thread, and so is fp16, whose gradients need their scale. Without
    effect on other devices, and with one thread.
    """
    if precision.device.type != "cpu" or torch.get_num_threads() == 1:
        yield loss
        return
    if pieces > 1 or precision.scaled:
        with one_thread():
            yield loss
        return
    every = torch.get_num_threads()
    threads = max(1, min(every, most_threads))
    try:
        # The initializer runs in each thread of the pool, where it takes torch's own threads away.
        with ThreadPoolExecutor(threads, "wm-share", torch.set_num_threads, (1,)) as pool:
            yield ThreadedLoss(model, share, precision, pool, threads)
    finally:
        torch.set_num_threads(every)  # a thread of the pool has set it to one, for itself and for all that start later


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread inside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class ThreadedLoss:
    """The loss of a batch, and its gradient for the parameters of `model`, as the sum of those of its shares, in their
    order. So it depends on the number of threads as other sums of floats do, and not on which of them is faster."""

    def __init__(
        self, model: nn.Module, share: Share, precision: Precision, pool: ThreadPoolExecutor, threads: int
    ) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._share, self._precision, self._pool, self._threads = share, precision, pool, threads

    def __call__(self, *arguments: Tensor) -> Any:
        """The loss of these tensors, all of which have as many rows: a NamedTuple whose first field is the total. The
        other fields have no gradient."""
        count = min(self._threads, len(arguments[0]))
        shares = list(self._pool.map(lambda number: self._compute(arguments, Piece(number, count)), range(count)))
        kind = type(shares[0][0])
        total, *others = (torch.stack(values).sum() for values in zip(*(terms for terms, _ in shares), strict=True))
        gradients = [_added(parts) for parts in zip(*(gradients for _, gradients in shares), strict=True)]
        differentiated: Any = _Differentiated.apply
        return kind(differentiated(total, gradients, *self._parameters), *others)

    def _compute(self, arguments: Sequence[Tensor], piece: Piece) -> tuple[Any, tuple[Tensor | None, ...]]:
        # Threads share autocast's cache of weights in bfloat16, so what one finds there would depend on the others.
        alone = self._threads == 1
        with torch.autocast("cpu", self._precision.dtype, self._precision.name != "fp32", cache_enabled=alone):
            terms = self._share(piece, *arguments)
        # Not backward(): that adds into .grad, which all threads share.
        gradients = torch.autograd.grad(terms[0], self._parameters, allow_unused=True)
        return type(terms)(*(value.detach() for value in terms)), gradients


def _added(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of a parameter's gradients, in the first of them; None where the loss does not depend on it."""
    total = parts[0]
    for part in parts[1:]:
        if total is not None and part is not None:
            total += part
    return total


class _Differentiated(torch.autograd.Function):
    """A number whose gradients for the parameters are known already."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, gradients: list[Tensor | None], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        # A clone, because autograd forbids to return an input that keeps no gradient of its own.
        return total.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (None if gradient is None else outer * gradient for gradient in ctx.gradients)
        return None, None, *gradients
