"""The training of M: its loss on windows of latents, and the fit to the best validation loss."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.actions import ActionSpace
from wm.episodes.latents import Latents
from wm.episodes.mixture import WindowMixture
from wm.episodes.pieces import WHOLE, Piece
from wm.episodes.split import validation_mask
from wm.episodes.windows import WindowBatch, Windows
from wm.models.initialization import seeded_initialization
from wm.models.mdnrnn.config import MdnRnnConfig
from wm.models.mdnrnn.network import MdnRnn
from wm.models.mdnrnn.predictor import Part, Predictor
from wm.models.mdnrnn.rollout_network import RolloutNetwork
from wm.runtime import Runtime
from wm.seeding import integer
from wm.settings import MdnRnnSettings
from wm.training.acceleration import accelerate
from wm.training.fit import compile_if_asked, fit, make_trainer, pieces_of
from wm.training.precision import Precision

VALIDATION_WINDOWS, VALIDATION_ROLLOUTS = 64, 512  # of the paper's network; rollouts are shorter
# Where rewards are constant; without it they would be divided by 0.
MIN_REWARD_STD = 1e-3
MIN_STD = 0.02  # of latents and of their standardised differences, where frames are constant
# Of V's deviation: the mean of a latent that V does not use moves by less, and in units of that it would be all of the
# loss.
MIN_CHANGE = 0.25
INPUT_NOISE = 0.5  # of V's deviation, in the inputs of the rollout network
SHARE_ROWS = 48  # of a thread, at least: with fewer, starting the many small operations takes longer than they do


def mdnrnn_config(settings: MdnRnnSettings, latent: int, space: ActionSpace) -> MdnRnnConfig:
    """The sizes of M for so many latents and these actions."""
    return MdnRnnConfig(
        latent,
        space.as_json(),
        settings.hidden,
        settings.mixtures,
        settings.end_weight,
        settings.network,
        settings.units if settings.network == "rollout" else 0,
    )


def new_mdnrnn(config: MdnRnnConfig, seed: int) -> Predictor:
    """M with the initial weights of this seed."""
    with seeded_initialization(seed, "mdnrnn", "init"):
        return config.build()


def fit_normalization(model: Predictor, latents: Latents) -> None:
    """Set the constants of the data by which M standardises rewards, and latents."""
    if isinstance(model, MdnRnn):
        model.reward_mean.fill_(float(latents.rewards.mean()))
        model.reward_std.fill_(max(float(latents.rewards.std()), MIN_REWARD_STD))
        return
    assert isinstance(model, RolloutNetwork)
    within = np.ones(latents.rows - 1, bool)
    within[latents.ends[:-1] - 1] = False
    # float64: sums of a million float32 numbers lose digits.
    noise = np.sqrt(np.exp(latents.logvars).mean(axis=0, dtype=np.float64))
    std = np.maximum(np.sqrt(latents.means.var(axis=0, dtype=np.float64) + noise**2), MIN_STD)
    difference = (np.diff(latents.means, axis=0)[within] / std).std(axis=0, dtype=np.float64)
    paid = np.abs(latents.rewards[latents.rewards != 0])
    for buffer, value in (
        (model.z_mean, latents.means.mean(axis=0, dtype=np.float64)),
        (model.z_std, std),
        (model.difference_std, np.maximum(difference, np.maximum(MIN_CHANGE * noise / std, MIN_STD))),
        (model.reward_unit, np.median(paid) if len(paid) else 1.0),
    ):
        buffer.copy_(torch.as_tensor(value))


def copy_normalization(source: Predictor, target: Predictor) -> None:
    """Give an untrained M the constants of the data that a trained one has: what differs is what was trained."""
    for name, value in source.named_buffers():
        target.get_buffer(name).copy_(value)


def window_length(settings: MdnRnnSettings) -> int:
    """Steps of a training window."""
    return settings.seq_len if settings.network == "paper" else settings.warm_up + settings.rollout_steps


def training_windows(
    settings: MdnRnnSettings, parts: Sequence[Latents], sizes: Sequence[int], seed: int
) -> WindowMixture:
    """Batches of windows with so many from each part, without the validation episodes."""
    events = 0.0 if settings.network == "paper" else settings.event_share
    masks = [~validation_mask(part.seeds, settings.validation_share) for part in parts]
    return _windows(settings, parts, masks, sizes, seed, events)


def validation_count(network: str) -> int:
    """The windows of a validation."""
    return VALIDATION_WINDOWS if network == "paper" else VALIDATION_ROLLOUTS


def validation_windows(
    settings: MdnRnnSettings, parts: Sequence[Latents], sizes: Sequence[int], seed: int
) -> WindowBatch:
    """The windows that every validation uses: so many from each part's validation episodes, or from its only one.

    In later rounds the parts have their shares of the training batches here, too. Drawn from all episodes alike, most
    windows were of random play, and an M that had learned from the policy's episodes lost to the one before it.
    """
    masks = [validation_mask(part.seeds, settings.validation_share) for part in parts]
    masks = [mask if mask.any() else ~mask for mask in masks]
    return _windows(settings, parts, masks, sizes, integer(seed, "validation")).at(0)


def _windows(
    settings: MdnRnnSettings,
    parts: Sequence[Latents],
    masks: Sequence[NDArray[np.bool_]],
    sizes: Sequence[int],
    seed: int,
    events: float = 0.0,
) -> WindowMixture:
    length = window_length(settings)
    return WindowMixture(
        [
            Windows(part, mask, length, size, seed, settings.context, events)
            for part, mask, size in zip(parts, masks, sizes, strict=True)
        ]
    )


def fit_mdnrnn(
    runtime: Runtime,
    folder: Path,
    label: str,
    settings: MdnRnnSettings,
    windows: WindowMixture,
    validation: WindowBatch,
    model: Predictor,
    seed: int,
    precision: Precision,
) -> dict[str, float]:
    """Train the model to its best validation loss, from the last checkpoint in `folder`; returns the scores. That loss
    is over rollouts where M is trained on them."""
    run_loss = compile_if_asked(loss_of(model, settings.dreamt_rewards), settings.compile)
    accelerated = accelerated_mdnrnn_loss(model, run_loss, settings, precision, runtime.ranks is not None)

    def losses_of(run: Callable[..., Any], arguments: list[Tensor], *part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        losses = run(*(tensor.to(precision.device) for tensor in arguments), *part)._asdict()
        total = losses.pop("total")
        return total, {"loss": total, **losses}

    def random(*path: int | str) -> torch.Generator:
        return torch.Generator().manual_seed(integer(seed, "mdnrnn", *path))

    @torch.inference_mode()
    def validate() -> dict[str, float]:
        with precision.cast():
            _, metrics = losses_of(run_loss, loss_arguments(validation, settings.context, 0.0, random("validation")))
        return {f"validation_{name}": value.item() for name, value in metrics.items()}

    def loss(number: int, piece: Piece = WHOLE) -> tuple[Tensor, dict[str, Tensor]]:
        step, rows, batch = number // settings.accumulate, piece.rows(windows.size), windows.at(number, piece)
        noise = input_noise(settings.network, step, steps=settings.steps, noise_anneal=settings.noise_anneal)
        arguments = loss_arguments(batch, settings.context, noise, random("noise", number), rows, windows.size)
        if piece == WHOLE:
            return losses_of(run_whole, arguments)
        existing = torch.from_numpy(windows.existing(number)).to(precision.device)
        return losses_of(run_loss, arguments, Part(rows[0], existing))

    pieces = pieces_of(loss, settings.pieces, runtime.ranks)
    trainer = make_trainer(model, loss, precision, settings, model.clipped_apart(), pieces)
    with accelerated as run_whole:
        return fit(runtime, folder, label, trainer, validate, windows.describe, settings)


def loss_of(model: Predictor, dreamt_rewards: bool) -> Callable[..., Any]:
    """The model's loss, in which rewards are also learned on rollouts or not."""
    return partial(model.loss, dreamt_rewards=True) if dreamt_rewards else model.loss


def accelerated_mdnrnn_loss(
    model: Predictor, run: Callable[..., Any], settings: MdnRnnSettings, precision: Precision, ranks: bool = False
) -> AbstractContextManager[Callable[..., Any]]:
    """`run`, M's loss of a whole batch, as a CUDA graph, or on the threads of a CPU."""

    def share(piece: Piece, *arguments: Tensor) -> Any:
        *_, mask = arguments
        first, stop = piece.rows(len(mask))
        loss = loss_of(model, settings.dreamt_rewards)
        return loss(*(argument[first:stop] for argument in arguments), Part(first, mask.sum(0)))

    return accelerate(model, run, share, SHARE_ROWS, settings, precision, ranks)


def input_noise(network: str, step: int, *, steps: int, noise_anneal: float) -> float:
    """The factor of q(z|frame)'s deviation in the input z at a step: 1, then falling to 0 over the last share of the
    steps. That of the rollout network does not fall."""
    if network == "rollout":
        return INPUT_NOISE
    remaining = 1 - step / steps
    # None of the deviation at the end, which C and dreams give M.
    return min(1.0, remaining / noise_anneal) if noise_anneal else 1.0


def loss_arguments(
    batch: WindowBatch,
    context: int | None,
    noise: float,
    random: torch.Generator,
    rows: tuple[int, int] | None = None,
    count: int = 0,
) -> list[Tensor]:
    """Arguments of the loss. The inputs are new samples of q(z|frame), its deviation times `noise`; the targets are the
    means, which C observes. Before a rollout there are `context` real steps; None: there is no rollout. A piece of a
    batch of `count` windows, its `rows`, has the noise that it has in the batch."""
    inputs = slice(None, -1 if context is None else context + 1)
    mean, logvar = torch.from_numpy(batch.means[:, inputs]), torch.from_numpy(batch.logvars[:, inputs])
    first, stop = rows or (0, len(mean))
    normal = torch.randn((count or stop, *mean.shape[1:]), generator=random)[first:stop]
    drawn = noise * torch.exp(0.5 * logvar) * normal
    others = [torch.from_numpy(array) for array in (batch.rewards, batch.ends, batch.mask)]
    means, actions = torch.from_numpy(batch.means), torch.from_numpy(batch.actions)
    if context is None:
        return [mean + drawn, actions, means[:, 1:], *others]
    return [means, drawn, actions, *others]


@torch.inference_mode()
def fit_residuals(model: Predictor, validation: WindowBatch, warm_up: int) -> None:
    """Measure the deviation of the rollout network's one-step predictions on held-out windows, after `warm_up` steps.
    It is the scale of the noise in dreams."""
    if not isinstance(model, RolloutNetwork):
        return
    z = model.standardise(torch.from_numpy(validation.means[:, : warm_up + 2]))
    state, actions = model.initial_state(len(z)), torch.from_numpy(validation.actions)
    for step in range(warm_up + 1):
        inputs, context, state = model.remember(z[:, step], actions[:, step], state)
        if step < warm_up:
            state = tuple(part * torch.from_numpy(validation.mask[:, step, None]) for part in state)
    residuals = model.predict(inputs, context) - z[:, warm_up + 1]
    model.residual_std.copy_(residuals.square().mean(0).sqrt().clamp(min=MIN_STD * model.difference_std))
