"""Training M on latents, one core, steps of sequences per second: ours as `wm train-mdnrnn` does it, against plain
nn.LSTM, batch 16, windows of 32, RMSprop, float32, on the same latents (random numbers: only speed is measured). The
rollout network: against the same network, loss and batch, written plainly."""

import itertools
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.measure import formats, one_core, rates, report
from benchmarks.reference import HIDDEN, LATENT, MIXTURES, plain_mdnrnn_step, plain_rollout_step
from wm.actions import ActionSpace
from wm.episodes.latents import Latents
from wm.episodes.windows import Windows
from wm.models.mdnrnn.network import MdnRnn
from wm.settings import MdnRnnSettings
from wm.training.loop import Trainer
from wm.training.mdnrnn import (
    INPUT_NOISE,
    fit_normalization,
    loss_arguments,
    mdnrnn_config,
    new_mdnrnn,
    training_windows,
    window_length,
)
from wm.training.precision import Precision

ROLLOUTS = 192  # in a batch of the preset


def random_latents(episodes: int = 20, rows: int = 1000) -> Latents:
    """Random walks."""
    random = np.random.default_rng(0)
    # A random walk within bounds: latents that a step changes little, as real ones.
    means = (random.standard_normal((episodes * rows, LATENT)) * 0.1).cumsum(0).astype(np.float32) % 4 - 2
    return Latents(
        means=means,
        logvars=np.full_like(means, -4),
        actions=random.integers(0, 6, len(means)).astype(np.int32),
        rewards=random.standard_normal(len(means)).astype(np.float32),
        ends=np.arange(rows, len(means) + 1, rows),
        terminated=np.ones(episodes, bool),
        seeds=np.arange(episodes),
        space=ActionSpace(count=6),
    )


def step(latents: Latents, precision: str) -> Callable[[], int]:
    """A step of our training; returns the steps inside episodes, not those of a window past an episode's end."""
    torch.manual_seed(0)
    settings = MdnRnnSettings()
    model = MdnRnn(LATENT, latents.space.width, HIDDEN, MIXTURES, settings.end_weight)
    windows = Windows(latents, np.ones(len(latents.ends), bool), settings.seq_len, settings.batch, 0)
    steps_inside = 0

    def loss(number: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        nonlocal steps_inside
        batch, random = windows.at(number), torch.Generator().manual_seed(number)
        steps_inside = int(batch.mask.sum())
        return model.loss(*loss_arguments(batch, settings.context, 1.0, random)).total, {}

    format_ = Precision(precision, torch.device("cpu"))
    # A million steps: the learning rate hardly falls during the benchmark.
    trainer = Trainer(model, loss, format_, steps=1_000_000, learning_rate=1e-4, clip=1.0)
    numbers = itertools.count()

    def take() -> int:
        trainer.step(next(numbers))
        return steps_inside

    return take


def rollout_step(latents: Latents, precision: str) -> Callable[[], int]:
    """A step of the training of the rollout network without memory, as in the preset `dream`."""
    settings = MdnRnnSettings(network="rollout", hidden=0, batch=ROLLOUTS)
    model = new_mdnrnn(mdnrnn_config(settings, LATENT, latents.space), 0)
    fit_normalization(model, latents)
    windows = training_windows(settings, [latents], [ROLLOUTS], 0)

    def loss(number: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        random = torch.Generator().manual_seed(number)
        return model.loss(*loss_arguments(windows.at(number), settings.context, INPUT_NOISE, random)).total, {}

    format_, parts = Precision(precision, torch.device("cpu")), model.clipped_apart()
    trainer = Trainer(model, loss, format_, steps=1_000_000, learning_rate=1e-3, clip=settings.clip, parts=parts)
    numbers = itertools.count()

    def take() -> int:
        trainer.step(next(numbers))
        return ROLLOUTS * window_length(settings)

    return take


def main() -> None:
    one_core()
    torch.set_num_threads(1)
    latents = random_latents()
    plain = plain_mdnrnn_step(latents)
    goals = {"fp32": 1.2, "bf16": 2.3}
    for precision in formats():
        ours, reference, ratio = rates(step(latents, precision), plain, seconds=2.0, windows=5)
        report(f"train_mdnrnn_{precision}", ours, reference, goals[precision], "steps/s", ratio)
    settings = MdnRnnSettings(network="rollout")
    plain = plain_rollout_step(latents, settings.warm_up, settings.rollout_steps, ROLLOUTS)
    for precision in formats():
        ours, reference, ratio = rates(rollout_step(latents, precision), plain, seconds=2.0, windows=5)
        report(f"train_rollout_{precision}", ours, reference, 1.3, "steps/s", ratio)


if __name__ == "__main__":
    main()
