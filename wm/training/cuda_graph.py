"""CUDA graphs of V's and M's losses.

M's rollouts are hundreds of small kernels, which a GPU finishes faster than Python launches them. A graph records the
kernels of a loss and of its gradient once, and starts them together from then on.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from wm.training.precision import Precision


class GraphedLoss:
    """`loss`, which maps tensors to a NamedTuple whose first field is the total, replayed as a CUDA graph.

    It is recorded at the first call, so every call needs tensors of the same shapes. The other fields have no gradient.
    """

    def __init__(self, model: nn.Module, loss: Callable[..., Any], precision: Precision) -> None:
        self._recorded = _Recorded(model, loss, precision)
        self._replay: Any = None

    def __call__(self, *arguments: Tensor) -> Any:
        """The loss of these tensors, on the device."""
        if self._replay is None:
            # The graph keeps nodes of the stream it was recorded on, which torch would warn of at every training.
            torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
            # Outside of autocast, or the casts would be recorded a second time.
            with torch.autocast("cuda", enabled=False):  # the recorded module has its own
                self._replay = torch.cuda.make_graphed_callables(self._recorded, arguments, allow_unused_input=True)
        outputs = [value.clone() for value in self._replay(*arguments)]  # the next replay overwrites them
        return self._recorded.kind(*outputs)


class _Recorded(nn.Module):
    """What the graph contains. The cast of weights is part of it, so autocast must not remember an earlier one."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any], precision: Precision) -> None:
        super().__init__()
        self.model, self._loss, self._precision = model, loss, precision
        self.kind: Callable[..., Any] = tuple

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        precision = self._precision
        enabled = precision.name != "fp32"
        with torch.autocast(precision.device.type, precision.dtype, enabled=enabled, cache_enabled=False):
            terms = self._loss(*arguments)
        self.kind = type(terms)
        total, *others = terms
        return total, *(value.detach() for value in others)


def graphed_on_cuda(
    model: nn.Module, loss: Callable[..., Any], precision: Precision, losses_per_step: int
) -> Callable[..., Any]:
    """`loss` as a CUDA graph on a device of CUDA, where every step has one: a second one, of another batch or piece,
    would add to gradients that the graph overwrites (pytorch issue 181723)."""
    graphed = precision.device.type == "cuda" and losses_per_step == 1
    return GraphedLoss(model, loss, precision) if graphed else loss
