"""The training of V: its data, its loss, and the fit to the best validation loss."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameBatches, evenly_spaced_frames
from wm.episodes.mixture import FrameMixture, batch_sizes
from wm.episodes.pieces import WHOLE, Piece
from wm.episodes.split import validation_mask
from wm.models.initialization import seeded_initialization
from wm.models.vae.loss import VaeLoss, VaeLossTerms
from wm.models.vae.networks import Vae, build, to_frames
from wm.runtime import Runtime
from wm.seeding import integer
from wm.settings import VaeSettings
from wm.training.acceleration import accelerate
from wm.training.fit import compile_if_asked, fit, make_trainer, pieces_of
from wm.training.pinned_buffers import PinnedBuffers
from wm.training.precision import Precision
from wm.units import parse_size

# The same frames in every validation, so that losses compare. They stay in memory: 6 MB of 64 x 64 RGB.
VALIDATION_FRAMES = 512
SAMPLE_FRAMES = 4096  # from which the data's mean image, colours and position targets are measured
FRAMES_PER_BATCH = 64  # without gradients
SHARE_ROWS = 8  # of a thread, at least: a frame costs half as much again as in a batch of 64


class VaeData(NamedTuple):
    """Batches of training frames, frames for validation, a sample of the training frames, and the validation mask of
    the first dataset's episodes."""

    batches: FrameMixture
    validation: NDArray[np.uint8]
    sample: Tensor
    mask: NDArray[np.bool_]


def new_vae(network: str, latent: int, shape: tuple[int, ...], seed: int) -> Vae:
    """V with the initial weights of this seed, for frames of this shape (height, width, channels)."""
    size, _, channels = shape
    with seeded_initialization(seed, "vae", "init"):
        return build(network, size, channels, latent)


def new_vae_loss(settings: VaeSettings, model: Vae, sample: Tensor, seed: int) -> VaeLoss:
    """V's loss as the settings define it, measured on a sample of frames."""
    names = ("reconstruction_nats", "pixel_weighting", "position_targets", "position_basis", "orientation_targets",
             "kl_tolerance")  # fmt: skip
    with seeded_initialization(seed, "vae", "reader"):
        return VaeLoss(model, sample, **{name: getattr(settings, name) for name in names}).to(sample.device)


def accelerated_vae_loss(
    objective: VaeLoss,
    run: Callable[..., VaeLossTerms],
    settings: VaeSettings,
    precision: Precision,
    ranks: bool = False,
) -> AbstractContextManager[Callable[..., VaeLossTerms]]:
    """`run`, V's loss of a whole batch, as a CUDA graph, or on the threads of a CPU."""

    def share(piece: Piece, frames: Tensor, noise: Tensor) -> VaeLossTerms:
        first, stop = piece.rows(len(frames))
        terms = objective(frames[first:stop], noise[first:stop])
        return VaeLossTerms(*((stop - first) / len(frames) * term for term in terms))  # means over frames

    return accelerate(objective, run, share, SHARE_ROWS, settings, precision, ranks)


def cache_bytes(ram: str) -> int:
    """Bytes of decoded frames that may stay in memory; `auto` is a quarter of the free memory."""
    # A quarter, because workers, activations and the page cache need the rest.
    return psutil.virtual_memory().available // 4 if ram == "auto" else parse_size(ram, "--set ram")


def open_vae_data(
    datasets: Sequence[Dataset],
    seed: int,
    device: torch.device,
    *,
    batch: int,
    mixture: str,
    validation_share: float,
    ram: int,
) -> VaeData:
    """The data of a training; all frames that fit into `ram` bytes are decoded once, others stream from disk."""
    masks = [validation_mask(dataset.table["seed"], validation_share) for dataset in datasets]
    sizes = batch_sizes(batch, mixture, datasets)
    rows = sum(dataset.rows for dataset in datasets)
    sources = [
        # Each dataset has memory by its rows.
        FrameBatches(dataset, ~mask, size, seed, ram * dataset.rows // rows)
        for dataset, mask, size in zip(datasets, masks, sizes, strict=True)
    ]
    validation_masks = [mask if mask.any() else ~mask for mask in masks]
    validation = evenly_spaced_frames(datasets, validation_masks, sizes, VALIDATION_FRAMES)
    sample = evenly_spaced_frames(datasets, [~mask for mask in masks], sizes, SAMPLE_FRAMES)
    return VaeData(FrameMixture(sources), validation, torch.from_numpy(sample).to(device), masks[0])


def mean_terms(frames: Tensor, terms: Callable[[int, Tensor], Sequence[Tensor]]) -> list[float]:
    """The means over all frames of `terms` of a numbered part of them, each a mean over that part."""
    parts = frames.split(FRAMES_PER_BATCH)
    sums = sum(len(part) * torch.stack(list(terms(number, part))).float() for number, part in enumerate(parts))
    means: list[float] = (torch.as_tensor(sums) / len(frames)).tolist()
    return means


def fit_vae(
    runtime: Runtime,
    folder: Path,
    label: str,
    settings: VaeSettings,
    data: VaeData,
    model: Vae,
    seed: int,
    precision: Precision,
) -> dict[str, float]:
    """Train the model to its best validation loss, from the last checkpoint in `folder`; returns the scores."""
    device = precision.device
    objective = new_vae_loss(settings, model, data.sample, seed)
    buffers = PinnedBuffers((settings.batch, *data.sample.shape[1:]), device)
    run_objective = compile_if_asked(objective, settings.compile)
    accelerated = accelerated_vae_loss(objective, run_objective, settings, precision, runtime.ranks is not None)

    def noise(*path: int | str, count: int) -> Tensor:
        # On the CPU, whose generator gives the same numbers on every machine.
        random = torch.Generator().manual_seed(integer(seed, "vae", *path))
        return torch.randn(count, settings.latent, generator=random).to(device)

    def loss(number: int, piece: Piece = WHOLE) -> tuple[Tensor, dict[str, Tensor]]:
        first, stop = piece.rows(data.batches.size)
        frames = buffers.send(len(data.batches.at(number, buffers.empty(), piece)))
        run = run_whole if piece == WHOLE else run_objective
        terms = run(frames, noise("noise", number, count=data.batches.size)[first:stop])
        share = len(frames) / data.batches.size  # every term is a mean over frames
        metrics = {"loss": terms.total, "error": terms.error, "kl": terms.kl, "position_error": terms.position_error}
        metrics = {name: share * value for name, value in metrics.items()}
        return metrics["loss"] / max(settings.reconstruction_nats, 1), metrics

    @torch.inference_mode()
    def validate() -> dict[str, float]:
        def terms(number: int, part: Tensor) -> Sequence[Tensor]:
            with precision.cast():
                return objective(part.to(device), noise("validation", number, count=len(part)))

        means = mean_terms(torch.from_numpy(data.validation), terms)
        names = ("loss", "error", "kl", "position_error")
        return {f"validation_{name}": mean for name, mean in zip(names, means, strict=True)}

    describe = data.batches.describe
    pieces = pieces_of(loss, settings.pieces, runtime.ranks)
    trainer = make_trainer(objective, loss, precision, settings, pieces=pieces)
    with accelerated as run_whole:
        return fit(runtime, folder, label, trainer, validate, describe, settings, lambda: data.batches.nbytes)


@torch.inference_mode()
def reconstruct(model: Vae, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """V's reconstruction of frames (N, H, W, C), from the mean of q(z|frame)."""
    parts = torch.from_numpy(frames).split(FRAMES_PER_BATCH)
    return np.concatenate([to_frames(model.decode(model.encode(part)[0])).numpy() for part in parts])


def mean_image_error(frames: NDArray[np.uint8]) -> float:
    """The squared error per frame of their mean image."""
    images = frames.astype(np.float32) / 255
    return float(np.square(images - images.mean(axis=0)).sum(axis=(1, 2, 3)).mean())
