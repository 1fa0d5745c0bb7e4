"""A Dreamer's updates as fast as a device allows: on a GPU, as CUDA graphs of a whole one.

An update has many small kernels, which a GPU finishes faster than Python launches them. A graph records the kernels of
an update once: losses, gradients, clipping and the optimizer. They are started together from then on.
"""

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from wm.models.dreamer.agent import DreamerTrainer
from wm.models.dreamer.world_model import Batch
from wm.training.cpu_threads import one_thread

Update = Callable[[Batch, torch.Generator, bool], dict[str, Tensor]]

PLAIN_UPDATES = 3  # before a recording: they create the optimizer's moments, and let cuDNN choose


class GraphedUpdate:
    """Updates of `trainer` on a CUDA device, which are recorded after the first three of a kind, and replayed.

    There are two kinds, with actor and critic and without. Every call needs batches of the same shapes and the same
    generator, whose seed may change between calls.
    """

    def __init__(self, trainer: DreamerTrainer) -> None:
        self._trainer = trainer
        self._plain = Counter[bool]()
        self._replays: dict[bool, Callable[[Batch], dict[str, Tensor]]] = {}

    def __call__(self, batch: Batch, noise: torch.Generator, train_actor_critic: bool) -> dict[str, Tensor]:
        """An update, and its metrics, on the device."""
        kind = train_actor_critic
        if kind not in self._replays:
            if self._plain[kind] < PLAIN_UPDATES:
                self._plain[kind] += 1
                return self._trainer.update(batch, noise, kind)
            self._replays[kind] = self._record(batch, noise, kind)
        return self._replays[kind](batch)

    def _record(self, example: Batch, noise: torch.Generator, kind: bool) -> Callable[[Batch], dict[str, Tensor]]:
        """Nothing is computed while it records."""
        # The graph reads its inputs from the memory that it was recorded with.
        inputs = Batch(*(part.clone() for part in example))
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(noise)
        torch.cuda.synchronize()
        # Other threads may use the device meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = self._trainer.update(inputs, noise, kind)

        def replay(batch: Batch) -> dict[str, Tensor]:
            for recorded, part in zip(inputs, batch, strict=True):
                recorded.copy_(part, non_blocking=True)
            graph.replay()
            return {name: value.clone() for name, value in outputs.items()}  # the next replay overwrites them

        return replay


def fastest_update(trainer: DreamerTrainer, device: torch.device) -> Update:
    """The trainer's updates: as CUDA graphs on a device of CUDA, else by one thread of torch. With two, on two idle
    cores, an update took 1.7 times as long with the preset `small`, 3 times with `nano` (docs/research/LOG.md,
    2026-11-27)."""
    return GraphedUpdate(trainer) if device.type == "cuda" else one_thread()(trainer.update)
