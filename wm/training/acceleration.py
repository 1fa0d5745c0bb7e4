"""V's and M's losses as they are trained: on a GPU as CUDA graphs, on several cores of a CPU by threads."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn

from wm.settings import GradientSettings
from wm.training.cpu_threads import Share, threaded_on_cpu
from wm.training.cuda_graph import graphed_on_cuda
from wm.training.precision import Precision


def accelerate(
    model: nn.Module,
    loss: Callable[..., Any],
    share: Share,
    least_rows: int,
    settings: GradientSettings,
    precision: Precision,
    ranks: bool = False,
) -> AbstractContextManager[Callable[..., Any]]:
    """`loss`, of a whole batch, as a CUDA graph or by threads, which compute at least `least_rows` rows each. `share`
    is that of `threaded_on_cpu`. The same loss with `compile=true`, and where processes share a batch (`ranks`)."""
    if settings.compile or ranks:
        return nullcontext(loss)
    graphed = graphed_on_cuda(model, loss, precision, settings.accumulate * settings.pieces)
    most_threads = settings.batch // least_rows
    return threaded_on_cpu(model, graphed, share, precision, most_threads=most_threads, pieces=settings.pieces)
