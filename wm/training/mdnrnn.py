"""The training of M: its loss on windows of latents, and the fit to the best validation loss."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.episodes.latents import Latents
from wm.episodes.mixture import WindowMixture
from wm.episodes.split import validation_mask
from wm.episodes.windows import WindowBatch, Windows
from wm.models.initialization import seeded_initialization
from wm.models.mdnrnn.network import MdnRnn
from wm.runtime import Runtime
from wm.seeding import integer
from wm.settings import MdnRnnSettings
from wm.training.fit import compile_if_asked, fit, make_trainer
from wm.training.precision import Precision

VALIDATION_WINDOWS = 64
MIN_REWARD_STD = 1e-3


def new_mdnrnn(settings: MdnRnnSettings, latent: int, width: int, seed: int) -> MdnRnn:
    """M with the initial weights of this seed, for so many latents and actions `width` wide."""
    with seeded_initialization(seed, "mdnrnn", "init"):
        return MdnRnn(latent, width, settings.hidden, settings.mixtures, settings.end_weight)


def fit_reward_normalization(model: MdnRnn, latents: Latents) -> None:
    """Set the constants by which M standardises rewards."""
    model.reward_mean.fill_(float(latents.rewards.mean()))
    model.reward_std.fill_(max(float(latents.rewards.std()), MIN_REWARD_STD))


def training_windows(
    settings: MdnRnnSettings, parts: Sequence[Latents], sizes: Sequence[int], seed: int
) -> WindowMixture:
    """Batches of windows with so many from each part, without the validation episodes."""
    return WindowMixture(
        [
            Windows(part, ~validation_mask(part.seeds, settings.validation_share), settings.seq_len, size, seed)
            for part, size in zip(parts, sizes, strict=True)
        ]
    )


def validation_windows(settings: MdnRnnSettings, latents: Latents, mask: NDArray[np.bool_], seed: int) -> WindowBatch:
    """The windows that every validation uses, from the episodes of `mask`, or from all if it is empty."""
    episodes, number = mask if mask.any() else ~mask, integer(seed, "validation")
    return Windows(latents, episodes, settings.seq_len, VALIDATION_WINDOWS, number).at(0)


def fit_mdnrnn(
    runtime: Runtime,
    folder: Path,
    label: str,
    settings: MdnRnnSettings,
    windows: WindowMixture,
    validation: WindowBatch,
    model: MdnRnn,
    seed: int,
    precision: Precision,
) -> dict[str, float]:
    """Train the model to its best validation loss, from the last checkpoint in `folder`; returns the scores."""
    run_loss = compile_if_asked(model.loss, settings)

    def batch_loss(batch: WindowBatch, noise: float, *path: int | str) -> tuple[Tensor, dict[str, Tensor]]:
        random = torch.Generator().manual_seed(integer(seed, "mdnrnn", *path))
        losses = run_loss(*(tensor.to(precision.device) for tensor in loss_arguments(batch, noise, random)))
        return losses.total, {"loss": losses.total, "nll": losses.nll, "reward": losses.reward, "end": losses.end}

    @torch.inference_mode()
    def validate() -> dict[str, float]:
        with precision.cast():
            _, metrics = batch_loss(validation, 0.0, "validation")
        return {f"validation_{name}": value.item() for name, value in metrics.items()}

    def loss(number: int) -> tuple[Tensor, dict[str, Tensor]]:
        noise = input_noise(number // settings.accumulate, settings)
        return batch_loss(windows.at(number), noise, "noise", number)

    trainer = make_trainer(model, loss, precision, settings)
    return fit(runtime, folder, label, trainer, validate, windows.describe, settings)


def input_noise(step: int, settings: MdnRnnSettings) -> float:
    """The factor of q(z|frame)'s deviation in the input z at a step: 1, then falling to 0 over the last steps."""
    left = 1 - step / settings.steps
    return min(1.0, left / settings.noise_anneal) if settings.noise_anneal else 1.0


def loss_arguments(batch: WindowBatch, noise: float, random: torch.Generator) -> list[Tensor]:
    """Arguments of the loss: the input z is a new sample of q(z|frame), its deviation times `noise`; the target is the
    mean, which C observes."""
    mean, logvar = torch.from_numpy(batch.means[:, :-1]), torch.from_numpy(batch.logvars[:, :-1])
    z = mean + noise * torch.exp(0.5 * logvar) * torch.randn(mean.shape, generator=random)
    others = (batch.actions, batch.means[:, 1:], batch.rewards, batch.ends, batch.mask)
    return [z, *(torch.from_numpy(array) for array in others)]
