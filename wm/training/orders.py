"""What the first process of torchrun tells the others during a training: take a step, load my state, end.

All decisions are its own: when to stop, to return to a checkpoint, or to end. The others hold the same model and the
same optimizer, and add their pieces of every gradient.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, NoReturn

from torch import Tensor

from wm.artifacts import json_reader
from wm.errors import RankFailed
from wm.ranks import TRAIN, PartDone, Ranks
from wm.training import checkpoint, weights
from wm.training.checkpoint import Resumable
from wm.training.loop import Trainer

# Numbers, because they travel in a tensor.
_STEP, _LOAD, _END = 1, 2, 3


class Others(NamedTuple):
    """How many of the other processes were reached by a signal, and how many exceed the memory limit."""

    stopping: int = 0
    exceeding: int = 0


class Orders:
    """Orders of the first process; without `ranks` nobody hears them."""

    def __init__(self, ranks: Ranks | None) -> None:
        self._ranks = ranks
        self._within_step = False

    @contextmanager
    def training(self) -> Iterator[None]:
        """All train from here on, and end with this context."""
        if self._ranks is None:
            yield
            return
        self._ranks.tell(TRAIN)
        self._ranks.meet()
        try:
            yield
        except RankFailed:
            raise
        except BaseException:
            if not self._within_step:  # else they wait for a gradient, and end with this process
                with suppress(RankFailed):
                    # A rank that has failed is gone, and its error is the one that is told.
                    self._ranks.sum([_END, 0, *Others()])
            raise
        self._ranks.sum([_END, 0, *Others()])

    def load(self, trainer: Resumable) -> None:
        """Take over this state."""
        if self._ranks is not None:
            self._ranks.sum([_LOAD, 0, *Others()])
            self._ranks.send(json.dumps(trainer.state()).encode())
            self._ranks.send(weights.to_bytes(checkpoint.tensors_of(trainer)))

    def take_step(self, trainer: Trainer, step: int) -> tuple[dict[str, Tensor], Others]:
        """Take this step. Returns its metrics, and what the others have told before it."""
        others = Others() if self._ranks is None else Others(*self._ranks.sum([_STEP, step, *Others()])[2:])
        self._within_step = True
        metrics = trainer.step(step)
        self._within_step = False
        return metrics, others


def obey(
    ranks: Ranks, trainer: Trainer, stop_requested: Callable[[], bool], memory_exceeded: Callable[[], bool]
) -> NoReturn:
    """Do what the first process orders, and raise PartDone at the end."""
    ranks.meet()
    while True:
        order, step, *_ = ranks.sum([0, 0, *Others(int(stop_requested()), int(memory_exceeded()))])
        if order == _END:
            raise PartDone
        if order == _STEP:
            trainer.step(step)
            continue
        state = json_reader.parse(ranks.send(), "the state of process 0", trainer.state_schema)
        tensors = weights.load_tensors(ranks.send(), "the state of process 0")
        checkpoint.load_tensors_into(trainer, tensors, "the state of process 0")
        trainer.load_state(state)
