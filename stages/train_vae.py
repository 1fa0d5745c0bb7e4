"""`wm train-vae`: episodes -> V."""

from pathlib import Path
from typing import Any

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
from wm.episodes.mixture import fingerprints, open_datasets
from wm.evaluation.linear_probe import probe_vae, summarize_probe
from wm.models.vae.networks import Vae, to_frames
from wm.pretrained import VaeConfig, save_vae
from wm.report.training_pictures import metric_curves, reconstruction_strip
from wm.settings import VaeSettings
from wm.telemetry.metrics_log import add_image
from wm.training.device import pick_device
from wm.training.fit import pick_precision, seconds_per_step
from wm.training.vae import (
    FRAMES_PER_BATCH,
    fit_vae,
    mean_image_error,
    new_vae,
    new_vae_loss,
    open_vae_data,
)
from wm.training.warm_start import load_initial_weights, source_fingerprint
from wm.units import parse_size

RECIPE = 2
OVERHEAD = 1.15  # of validations and checkpoints on the time of the steps
PROCESS_BYTES = 350_000_000  # of a process with torch
FRAME_BYTES = 6_000_000  # of activations per frame of a batch
_CURVES = {"training": "loss", "validation": "validation_loss"}


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
    model = new_vae(settings, shape, session.seed).to(device)
    objective = new_vae_loss(settings, model, frames, session.seed)
    noise = torch.zeros(settings.batch, settings.latent, device=device)

    def loss(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        return objective(frames, noise).total / max(settings.reconstruction_nats, 1), {}

    seconds = OVERHEAD * settings.steps * seconds_per_step(session.runtime.clock, objective, loss, settings, device)
    size = _parameter_bytes(model)
    return Plan(
        "train-vae",
        session.run_path / stage_name(session, "vae"),
        f"{settings.steps} steps of {settings.batch} of {rows:,} frames, {settings.latent} latents",
        size + 300_000,
        PROCESS_BYTES + 6 * size + min(rows * int(np.prod(shape)), _ram(settings)) + settings.batch * FRAME_BYTES,
        (seconds, seconds),
        rows,
        scratch=12 * size,
    )


def train_vae(session: Session, settings: VaeSettings) -> Result:
    """Train V on the episodes and publish the best weights by validation loss, with a strip of reconstructions."""
    datasets = open_datasets(session.data_paths, settings.episodes)
    size = _parameter_bytes(new_vae(settings, datasets[0].frame_shape, session.seed))
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


def _parameter_bytes(model: Vae) -> int:
    return 4 * sum(parameter.numel() for parameter in model.parameters())


def _ram(settings: VaeSettings) -> int:
    return psutil.virtual_memory().available // 4 if settings.ram == "auto" else parse_size(settings.ram)


def _train(session: Session, settings: VaeSettings, datasets: list[Dataset], folder: Path) -> dict[str, Any]:
    dataset, device = datasets[0], pick_device(session.device)
    data = open_vae_data(settings, datasets, session.seed, _ram(settings), device)
    model = new_vae(settings, dataset.frame_shape, session.seed).to(device)
    model.fit_normalization(data.sample)
    load_initial_weights(settings, "vae", model)
    precision = pick_precision(settings, device)
    scores = fit_vae(
        session.runtime, folder, f"train-vae {session.env}", settings, data, model, session.seed, precision
    )
    model.cpu()
    untrained = new_vae(settings, dataset.frame_shape, session.seed)
    untrained.fit_normalization(data.sample.cpu())
    env = EnvConfig(**dataset.recipe["env"])
    results = probe_vae(dataset, data.mask, model, untrained, session.seed)
    metrics = {
        **scores,
        "mean_image_error": mean_image_error(data.validation),
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
