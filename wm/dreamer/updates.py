"""Updates of a Dreamer on batches of a replay."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from wm.actions import ActionSpace
from wm.dreamer.cuda_graph import PLAIN_UPDATES, fastest_update
from wm.dreamer.replay_store import replay_buffer, replay_bytes
from wm.episodes.replay import ReplayBatch, ReplayBuffer
from wm.models.dreamer.agent import Dreamer, DreamerTrainer
from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import ReconstructionWeights
from wm.models.dreamer.world_model import Batch
from wm.models.initialization import seeded_initialization
from wm.seeding import generator, integer
from wm.settings import DreamerSettings
from wm.training.pinned_buffers import PinnedBuffers
from wm.training.precision import Precision

PIXEL_WEIGHTING = 0.5  # exponent, that of V's presets
OPTIMIZER_FACTOR = 3  # gradients and Adam's two moments, in sizes of the weights
ACTIVATION_FACTOR = 30  # activations, forward and backward, in sizes of a batch's frames in float32
PROCESS_BYTES = 400_000_000  # of the interpreter with torch
TIMED_UPDATES = 4  # on a CUDA device after those before a recording


def dreamer_config(settings: DreamerSettings, space: ActionSpace) -> DreamerConfig:
    """The networks' sizes for these settings and actions."""
    names = {field.name for field in fields(DreamerConfig)} & {field.name for field in fields(settings)}
    sizes = {name: getattr(settings, name) for name in names}
    return DreamerConfig(channels=1 if settings.gray else 3, action=space.width, discrete=space.discrete, **sizes)


def new_dreamer(config: DreamerConfig, seed: int) -> Dreamer:
    """An untrained Dreamer."""
    with seeded_initialization(seed, "dreamer", "init"):
        return Dreamer(config)


def new_trainer(model: Dreamer, settings: DreamerSettings, precision: Precision) -> DreamerTrainer:
    """A trainer with the hyperparameters of these settings."""
    return DreamerTrainer(
        model,
        precision.cast,
        horizon=settings.horizon,
        entropy=settings.entropy,
        reconstruction=ReconstructionWeights(settings.decoded_share, settings.reconstruction_nats, PIXEL_WEIGHTING),
        imagine_last=settings.imagine_last,
        world_learning_rate=settings.world_learning_rate,
        actor_learning_rate=settings.actor_learning_rate,
    )


def to_batch(steps: ReplayBatch, frames: Tensor, device: torch.device) -> Batch:
    """Tensors on the device; a window's first step counts as an episode's first."""
    first = steps.first.astype(np.float32)
    # The state before a window is not stored, so that it begins as an episode does.
    first[:, 0] = 1
    columns = (steps.actions, steps.rewards, first, steps.terminal.astype(np.float32))
    return Batch(frames, *(torch.from_numpy(column).to(device) for column in columns))


class ReplayUpdates:
    """Samples batches and updates the Dreamer on them. Batch and noise are functions of the seed and the update's
    number, so nothing random is saved."""

    def __init__(self, trainer: DreamerTrainer, batch: int, seq_len: int, seed: int, device: torch.device) -> None:
        config = trainer.model.config
        self._update = fastest_update(trainer, device)
        self._batch, self._seq_len, self._seed, self._device = batch, seq_len, seed, device
        self._frames = PinnedBuffers((batch, seq_len, config.size, config.size, config.channels), device)
        self._noise = torch.Generator(device)

    def __call__(self, buffer: ReplayBuffer, number: int, train_actor_critic: bool) -> dict[str, Tensor]:
        """Update number `number`; its metrics stay on the device."""
        # A batch is a function of seed and number (decision 0003).
        random = generator(self._seed, "dreamer", "batch", number)
        steps = buffer.sample(self._batch, self._seq_len, random, self._frames.empty())
        self._noise.manual_seed(integer(self._seed, "dreamer", "update", number))
        batch = to_batch(steps, self._frames.send(self._batch), self._device)
        return self._update(batch, self._noise, train_actor_critic)


def weight_bytes(model: Dreamer) -> int:
    """Bytes of the weights in float32."""
    return 4 * sum(parameter.numel() for parameter in model.parameters())


def training_bytes(config: DreamerConfig, weight_bytes: int, *, batch: int, seq_len: int, capacity: int) -> int:
    """Estimated memory of a training on windows of `seq_len` steps, with a replay of `capacity` steps."""
    # float32 of the frames; activations are estimated from them.
    frames = 4 * batch * seq_len * config.size**2 * config.channels
    replay = replay_bytes(capacity, config)
    return replay + OPTIMIZER_FACTOR * weight_bytes + ACTIVATION_FACTOR * frames + PROCESS_BYTES


def seconds_per_update(
    trainer: DreamerTrainer, batch: int, seq_len: int, device: torch.device, clock: Callable[[], float]
) -> float:
    """The duration of the fastest of a few updates."""
    config, took = trainer.model.config, []
    buffer = replay_buffer(1, seq_len, config, ActionSpace(count=1))
    black = np.zeros((config.size, config.size, config.channels), np.uint8)
    buffer.start_episode(0, black, 0)
    for _ in range(seq_len - 1):
        buffer.add_step(0, black, 0, 0.0, False)
    steps = buffer.sample(batch, seq_len, generator(0, "probe"))
    tensors = to_batch(steps, torch.from_numpy(steps.frames).to(device), device)
    tensors = tensors._replace(actions=torch.zeros(batch, seq_len, config.action, device=device))
    update, noise = fastest_update(trainer, device), torch.Generator(device)
    for number in range(TIMED_UPDATES + (PLAIN_UPDATES if device.type == "cuda" else 0)):
        began = clock()
        metrics = update(tensors, noise.manual_seed(number), True)
        metrics["kl"].item()  # waits for the device
        took.append(clock() - began)
    return min(took)
