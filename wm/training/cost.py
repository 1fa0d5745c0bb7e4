"""What a training of V or M costs, before it starts: the time of a few real steps, and bytes of disk and memory."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from wm.actions import ActionSpace
from wm.episodes.windows import WindowBatch
from wm.models.mdnrnn.predictor import Predictor
from wm.settings import MdnRnnSettings, VaeSettings
from wm.training.fit import make_trainer, pick_precision, seconds_per_step
from wm.training.mdnrnn import accelerated_mdnrnn_loss, loss_arguments, mdnrnn_config, new_mdnrnn, window_length
from wm.training.vae import SAMPLE_FRAMES, VALIDATION_FRAMES, accelerated_vae_loss, cache_bytes, new_vae, new_vae_loss

# Sizes of the weights that checkpoints take: the best, the last and the next one, each with Adam's two moments.
CHECKPOINTS = 9
VAE_OVERHEAD, MDNRNN_OVERHEAD = 1.15, 1.2  # of validations and checkpoints on the time of the steps
ENCODED_PER_SECOND = 5000  # frames
# On disk, of one number of a frame's latents, when it is encoded and in plans: two half floats, as if zstd saved
# nothing. With actions and rewards they took 1.3 (Breakout) to 3.5 bytes (CarRacing, 24 latents) on 2026-11-29.
LATENT_BYTES = 4
RECORD_BYTES = 2_000_000  # of a training beside its weights: log, pictures, records; the presets' take 0.2 to 0.4 MB
PROCESS_BYTES = 300_000_000  # of a process with torch
# What malloc keeps of that which steps and validations have freed. At the peak, the comparison of M with baselines or
# the probe of V, trainings in Pong had up to 40 MB more than 180 MB account for; repeats differ by 50 MB (2026-11-29).
FREED_BYTES = 240_000_000
# Sizes of the weights in memory: they, gradients of two threads, Adam's two moments, and a checkpoint's copies while it
# is saved. V's peak grew by 13 times its weights (17 to 37 MB), M's by 9 to 15 times (2 to 72 MB) (2026-11-29).
WEIGHT_COPIES = 13
LATENT_MEMORY = 20  # in memory, of a number of a frame's latents: mean and deviation as float32 are 8, joining the rest
PASS_FRAMES = 256  # at a time without gradients: when the data is measured, and when z is probed
PASS_BYTES, STEP_BYTES = 30, 110  # of activations for each number of a frame, without gradients and with them
EVALUATED_ROWS = 40_000  # at most, by which M is compared with baselines


@dataclass(frozen=True)
class TrainingCost:
    """Seconds, bytes of memory, bytes that stay on `disk`, those that are needed meanwhile (`scratch`), and how many of
    the bytes on disk are `latents`."""

    seconds: float
    memory: int
    disk: int
    scratch: int
    latents: int = 0


def weight_bytes(model: nn.Module) -> int:
    """Bytes of a model's weights."""
    # Four bytes a number, for weights are float32.
    return 4 * sum(parameter.numel() for parameter in model.parameters())


def publishing_bytes(model: nn.Module) -> int:
    """Bytes of disk that a training needs for its checkpoints and for what it publishes."""
    return (CHECKPOINTS + 1) * weight_bytes(model) + RECORD_BYTES


def vae_cost(
    clock: Callable[[], float],
    settings: VaeSettings,
    shape: tuple[int, ...],
    rows: int,
    seed: int,
    device: torch.device,
) -> TrainingCost:
    """Of a training of V on so many frames (height, width, channels), which need not exist yet."""
    # Random frames: the time of a step does not depend on what they show.
    random = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, 256, (settings.batch, *shape), dtype=torch.uint8, generator=random).to(device)
    model = new_vae(settings.network, settings.latent, shape, seed).to(device)
    objective = new_vae_loss(settings, model, frames, seed)
    noise = torch.zeros(settings.batch, settings.latent, device=device)

    def loss(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        return run(frames, noise).total / max(settings.reconstruction_nats, 1), {}

    precision = pick_precision(settings.precision, device, objective, tf32=settings.tf32)
    with accelerated_vae_loss(objective, objective, settings, precision) as run:
        trainer = make_trainer(objective, loss, precision, settings)
        seconds = VAE_OVERHEAD * settings.steps * seconds_per_step(clock, trainer)
    size, cache, oriented = weight_bytes(model), cache_bytes(settings.ram), settings.orientation_targets > 0
    frame_bytes = _frame_bytes(shape, rows, batch=settings.batch, cache=cache, oriented=oriented)
    memory = PROCESS_BYTES + WEIGHT_COPIES * size + frame_bytes
    return TrainingCost(seconds, memory, disk=size + RECORD_BYTES, scratch=CHECKPOINTS * size)


def _frame_bytes(shape: tuple[int, ...], rows: int, *, batch: int, cache: int, oriented: bool) -> int:
    """Bytes of memory for V's frames, of which `cache` bytes may stay decoded, and their activations. Those of the
    sample and of validation stay, and the sample is measured before the others are read."""
    frame = int(np.prod(shape))
    sample = min(rows, SAMPLE_FRAMES)
    measured = 4 * frame * sample if oriented else 0  # as floats, all at once
    passes = FREED_BYTES + frame * (PASS_FRAMES * PASS_BYTES + batch * STEP_BYTES)
    cached = min(rows * frame, cache)
    return frame * min(rows, sample + VALIDATION_FRAMES) + max(measured, passes + cached)


def mdnrnn_cost(
    clock: Callable[[], float],
    settings: MdnRnnSettings,
    latent: int,
    space: ActionSpace,
    rows: int,
    seed: int,
    device: torch.device,
) -> TrainingCost:
    """Of encoding so many frames as `latent` numbers and of a training of M on them, with these actions. The frames
    need not exist yet."""
    model = new_mdnrnn(mdnrnn_config(settings, latent, space), seed).to(device)
    length = window_length(settings)
    z = np.zeros((settings.batch, length + 1, latent), np.float32)
    flat = np.zeros((settings.batch, length), np.float32)
    batch = WindowBatch(z, z, np.zeros((settings.batch, length, space.width), np.float32), flat, flat, flat + 1)
    arguments = [part.to(device) for part in loss_arguments(batch, settings.context, 0.0, torch.Generator())]

    def loss(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        return run(*arguments).total, {}

    precision = pick_precision(settings.precision, device, model, tf32=settings.tf32)
    with accelerated_mdnrnn_loss(model, model.loss, settings, precision) as run:
        trainer = make_trainer(model, loss, precision, settings)
        seconds = MDNRNN_OVERHEAD * settings.steps * seconds_per_step(clock, trainer)
    size, latents = weight_bytes(model), rows * latent * LATENT_BYTES
    return TrainingCost(
        seconds + rows / ENCODED_PER_SECOND,
        mdnrnn_memory(model, rows, batch=settings.batch, length=length, mixtures=settings.mixtures),
        disk=size + latents + RECORD_BYTES,
        scratch=CHECKPOINTS * size,
        latents=latents,
    )


def mdnrnn_memory(model: Predictor, rows: int, *, batch: int, length: int, mixtures: int) -> int:
    """Bytes of memory for a training of M on so many latents, in windows of `length` steps. Of a step there are the
    LSTM's gates and states, and the mixtures; the comparison with baselines, at the end, has h and the inputs of
    probes."""
    per_step = 4 * (10 * model.hidden + 9 * mixtures * model.latent)
    training = batch * length * per_step
    compared = min(rows, EVALUATED_ROWS) * (33 * model.hidden + 24 * model.latent)
    latents = LATENT_MEMORY * rows * model.latent
    return PROCESS_BYTES + FREED_BYTES + WEIGHT_COPIES * weight_bytes(model) + latents + max(training, compared)
