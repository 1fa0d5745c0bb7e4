"""`wm train-vae`: episodes -> V."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from stages.session import Session, stage_name
from stages.stage import Plan, Result, plan_stage, run_stage
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Run
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameBatches, FrameReader
from wm.episodes.mixture import FrameMixture, batch_sizes, fingerprints, open_datasets
from wm.episodes.split import validation_mask
from wm.evaluation.linear_probe import evenly_spaced_rows, probe_vae, summarize_probe
from wm.models.initialization import seeded_initialization
from wm.models.vae.loss import VaeLoss
from wm.models.vae.networks import Vae, build, to_frames
from wm.pretrained import VaeConfig, save_vae
from wm.report.training_pictures import metric_curves, reconstruction_strip
from wm.seeding import integer
from wm.settings import VaeSettings
from wm.telemetry.metrics_log import add_image
from wm.training.device import pick_device
from wm.training.fit import compile_if_asked, fit, make_trainer, pick_precision, seconds_per_step
from wm.training.pinned_buffers import PinnedBuffers
from wm.training.precision import Precision
from wm.training.warm_start import load_initial_weights, source_fingerprint
from wm.units import parse_size

RECIPE = 2
VALIDATION_FRAMES = 512
SAMPLE_FRAMES = 4096  # from which the data's mean image, colours and position targets are measured
FRAMES_PER_BATCH = 64  # without gradients
_CURVES = {"training": "loss", "validation": "validation_loss"}


class _Data(NamedTuple):
    """Batches of training frames, frames for validation, a sample of the training frames, and the validation mask of
    the first dataset's episodes."""

    batches: FrameMixture
    validation: NDArray[np.uint8]
    sample: Tensor
    mask: NDArray[np.bool_]


def plan(session: Session, settings: VaeSettings) -> Plan:
    """What `train_vae` would do, with the time of a few real steps."""
    datasets = open_datasets(session.data_paths, settings.episodes)
    rows = sum(dataset.rows for dataset in datasets)
    run = _run(session, settings, datasets)
    return plan_stage("train-vae", run, lambda: estimate(session, settings, datasets[0].frame_shape, rows))


def estimate(session: Session, settings: VaeSettings, shape: tuple[int, ...], rows: int) -> Plan:
    """The plan for so many frames (height, width, channels), which need not exist yet."""
    device = pick_device(session.device)
    frames = torch.randint(0, 256, (settings.batch, *shape), dtype=torch.uint8, device=device)
    model = _model(shape, settings, session.seed).to(device)
    objective = _loss(model, frames, settings, session.seed)
    noise = torch.zeros(settings.batch, settings.latent, device=device)

    def loss(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        return objective(frames, noise).total / max(settings.reconstruction_nats, 1), {}

    seconds = seconds_per_step(session.runtime.clock, objective, loss, settings, device)
    seconds = 1.15 * settings.steps * seconds
    size = _parameter_bytes(model)
    return Plan(
        "train-vae",
        session.run_path / stage_name(session, "vae"),
        f"{settings.steps} steps of {settings.batch} of {rows:,} frames",
        size + 300_000,
        350_000_000 + 6 * size + min(rows * int(np.prod(shape)), _ram(settings)) + settings.batch * 6_000_000,
        (seconds, seconds),
        rows,
        scratch=12 * size,
    )


def train_vae(session: Session, settings: VaeSettings) -> Result:
    """Train V on the episodes and publish the best weights by validation loss, with a strip of reconstructions."""
    datasets = open_datasets(session.data_paths, settings.episodes)
    size = _parameter_bytes(_model(datasets[0].frame_shape, settings, session.seed))
    return run_stage(
        session,
        "train-vae",
        _run(session, settings, datasets),
        (13 * size + 2_000_000, "training V"),
        _summary,
        lambda builder: _train(session, settings, datasets, builder.folder),
        EnvConfig(**datasets[0].recipe["env"]),
    )


def _run(session: Session, settings: VaeSettings, datasets: list[Dataset]) -> Run:
    inputs = fingerprints(datasets) | source_fingerprint(settings, "vae")
    return session.make_run(stage_name(session, "vae"), "vae", RECIPE, settings.result_settings(), inputs)


def _model(shape: tuple[int, ...], settings: VaeSettings, seed: int) -> Vae:
    size, _, channels = shape
    with seeded_initialization(seed, "vae", "init"):
        return build(settings.network, size, channels, settings.latent)


def _loss(model: Vae, sample: Tensor, settings: VaeSettings, seed: int) -> VaeLoss:
    names = ("reconstruction_nats", "pixel_weighting", "position_targets", "position_basis", "orientation_targets",
             "kl_tolerance")  # fmt: skip
    with seeded_initialization(seed, "vae", "reader"):
        return VaeLoss(model, sample, **{name: getattr(settings, name) for name in names}).to(sample.device)


def _parameter_bytes(model: Vae) -> int:
    return 4 * sum(parameter.numel() for parameter in model.parameters())


def _ram(settings: VaeSettings) -> int:
    return psutil.virtual_memory().available // 4 if settings.ram == "auto" else parse_size(settings.ram)


def _open_data(settings: VaeSettings, datasets: list[Dataset], seed: int, device: torch.device) -> _Data:
    masks = [validation_mask(dataset.table["seed"], settings.validation_share) for dataset in datasets]
    sizes = batch_sizes(settings.batch, settings.mixture, datasets)
    ram, rows = _ram(settings), sum(dataset.rows for dataset in datasets)
    sources = [
        FrameBatches(dataset, ~mask, size, seed, ram * dataset.rows // rows)
        for dataset, mask, size in zip(datasets, masks, sizes, strict=True)
    ]
    validation_masks = [mask if mask.any() else ~mask for mask in masks]
    validation = _evenly_spaced_frames(datasets, validation_masks, sizes, VALIDATION_FRAMES)
    sample = _evenly_spaced_frames(datasets, [~mask for mask in masks], sizes, SAMPLE_FRAMES)
    return _Data(FrameMixture(sources), validation, torch.from_numpy(sample).to(device), masks[0])


def _evenly_spaced_frames(
    datasets: list[Dataset], masks: list[NDArray[np.bool_]], sizes: list[int], count: int
) -> NDArray[np.uint8]:
    """Up to `count` frames, evenly from the masked episodes of each dataset, in proportion to its part of a batch."""
    frames = []
    for dataset, mask, size in zip(datasets, masks, sizes, strict=True):
        reader = FrameReader(dataset)
        rows = evenly_spaced_rows(dataset, mask, count * size // sum(sizes))
        frames += [reader.read(int(row), int(row) + 1) for row in rows]
    return np.concatenate(frames)


def _train(session: Session, settings: VaeSettings, datasets: list[Dataset], folder: Path) -> dict[str, Any]:
    dataset, device = datasets[0], pick_device(session.device)
    data = _open_data(settings, datasets, session.seed, device)
    model = _model(dataset.frame_shape, settings, session.seed).to(device)
    model.fit_normalization(data.sample)
    load_initial_weights(settings, "vae", model)
    precision = pick_precision(settings, device)
    scores = _fit(session, settings, data, model, precision, folder)
    model.cpu()
    untrained = _model(dataset.frame_shape, settings, session.seed)
    untrained.fit_normalization(data.sample.cpu())
    env = EnvConfig(**dataset.recipe["env"])
    results = probe_vae(dataset, data.mask, model, untrained, session.seed)
    metrics = {
        **scores,
        "mean_image_error": _mean_image_error(data.validation),
        "images_per_second": round(scores["steps_per_second"] * settings.batch * settings.accumulate, 1),
        "precision": precision.name,
        "episodes": dataset.upto,
        "rows": sum(dataset.rows for dataset in datasets),
        "parameters": _parameter_bytes(model) // 4,
        "probe": {name: result.as_json() for name, result in results.items()},
        "probe_summary": summarize_probe(results, env, settings.require_probe, session.runtime.log),
    }
    config = VaeConfig(settings.network, model.size, model.channels, model.latent, dataset.recipe["env"])
    save_vae(folder, config, model)
    _save_pictures(folder, session.env, settings, model, data.validation)
    return metrics


def _fit(
    session: Session, settings: VaeSettings, data: _Data, model: Vae, precision: Precision, folder: Path
) -> dict[str, float]:
    """Train the model to its best validation loss; returns the scores."""
    device = precision.device
    objective = _loss(model, data.sample, settings, session.seed)
    buffers = PinnedBuffers((settings.batch, *data.sample.shape[1:]), device)
    run_objective = compile_if_asked(objective, settings)

    def noise(*path: int | str, count: int) -> Tensor:
        random = torch.Generator().manual_seed(integer(session.seed, "vae", *path))
        return torch.randn(count, settings.latent, generator=random).to(device)

    def loss(number: int) -> tuple[Tensor, dict[str, Tensor]]:
        frames = buffers.send(len(data.batches.at(number, buffers.empty())))
        terms = run_objective(frames, noise("noise", number, count=len(frames)))
        metrics = {"loss": terms.total, "error": terms.error, "kl": terms.kl, "position_error": terms.position_error}
        return terms.total / max(settings.reconstruction_nats, 1), metrics

    @torch.inference_mode()
    def validate() -> dict[str, float]:
        terms = []
        for part in torch.from_numpy(data.validation).split(FRAMES_PER_BATCH):
            with precision.cast():
                terms.append(objective(part.to(device), noise("validation", count=len(part))))
        names = ("loss", "error", "kl", "position_error")
        means = (torch.stack(column).mean().item() for column in zip(*terms, strict=True))
        return {f"validation_{name}": mean for name, mean in zip(names, means, strict=True)}

    trainer = make_trainer(objective, loss, precision, settings)
    return fit(
        session.runtime, folder, f"train-vae {session.env}", trainer, validate, data.batches.describe, settings,
        lambda: data.batches.nbytes,
    )  # fmt: skip


def _mean_image_error(frames: NDArray[np.uint8]) -> float:
    images = frames.astype(np.float32) / 255
    return float(np.square(images - images.mean(axis=0)).sum(axis=(1, 2, 3)).mean())


@torch.inference_mode()
def _save_pictures(folder: Path, env: str, settings: VaeSettings, model: Vae, validation: NDArray[np.uint8]) -> None:
    batches = torch.from_numpy(validation).split(FRAMES_PER_BATCH)
    reconstructions = np.concatenate([to_frames(model.decode(model.encode(part)[0])).numpy() for part in batches])
    strip = reconstruction_strip(env, validation, reconstructions)
    durable.write_bytes(folder / "reconstructions.png", strip)
    add_image(folder, settings.steps, "reconstructions", strip)
    durable.write_bytes(folder / "loss.png", metric_curves(folder, _CURVES, f"{env}: V", "loss (nats)"))


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    text = (
        f"squared error {metrics['validation_error']:.1f} a frame on held-out episodes (the mean image alone: "
        f"{metrics['mean_image_error']:.1f}), KL {metrics['validation_kl']:.1f} nats, best at step "
        f"{metrics['best_step']}"
    )
    return text + (f"; {metrics['probe_summary']}" if metrics["probe_summary"] else "")
