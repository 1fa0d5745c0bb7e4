"""What training a Dreamer costs, before it starts: the time of a few real updates, and bytes of disk and memory."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from wm.actions import ActionSpace
from wm.dreamer import updates
from wm.dreamer.replay_store import disk_bound
from wm.models.dreamer.agent import Dreamer
from wm.settings import DreamerSettings
from wm.training.precision import pick

CHECKPOINTS = 6  # sizes of the weights: the last checkpoint and the next one, each with Adam's two moments
MOST_OVERHEAD = 1.5  # times the updates' seconds, with acting and validations
STEPS_PER_SECOND = 200  # of the environments, at least


@dataclass(frozen=True)
class DreamerCost:
    """How many updates, the least and the most seconds, bytes of memory, bytes that stay on `disk`, and those that are
    needed meanwhile (`scratch`)."""

    updates: float
    seconds: tuple[float, float]
    memory: int
    disk: int
    scratch: int


def publishing_bytes(model: Dreamer) -> int:
    """Bytes of disk that a training needs for its checkpoints and for the weights it publishes."""
    return (CHECKPOINTS + 1) * updates.weight_bytes(model)


def dreamer_cost(
    clock: Callable[[], float],
    settings: DreamerSettings,
    space: ActionSpace,
    pretrained: bool,
    seed: int,
    device: torch.device,
) -> DreamerCost:
    """Of a training for these actions, which is `pretrained` on collected episodes or not."""
    config = updates.dreamer_config(settings, space)
    model = updates.new_dreamer(config, seed).to(device)
    trainer = updates.new_trainer(model, settings, pick(settings.precision, device))
    seconds = updates.seconds_per_update(trainer, settings.batch, settings.seq_len, device, clock)
    count = settings.steps * settings.train_ratio / (settings.batch * settings.seq_len)
    count += settings.pretrain if pretrained else 0
    weights = updates.weight_bytes(model)
    memory = updates.training_bytes(
        config, weights, batch=settings.batch, seq_len=settings.seq_len, capacity=settings.capacity
    )
    return DreamerCost(
        updates=count,
        seconds=(count * seconds, MOST_OVERHEAD * count * seconds + settings.steps / STEPS_PER_SECOND),
        memory=memory,
        disk=disk_bound(settings.capacity, settings.part_rows, config) + weights,
        scratch=CHECKPOINTS * weights,
    )
