"""`wm train-vae`: episodes -> V."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from stages import console
from stages.session import Session, pick_device, stage_name
from stages.stage import Plan, Result, made, up_to_date
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Run
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameBatches, FrameReader, held_out
from wm.episodes.mixture import FrameMixture, batch_sizes, fingerprints, open_datasets
from wm.evaluation.linear_probe import judge, probe, spread_rows
from wm.models.initialization import seeded_initialization
from wm.models.vae.loss import VaeLoss
from wm.models.vae.networks import Vae, build, to_frames
from wm.pretrained import VaeConfig, save_vae
from wm.report.film_strip import error_map, film_strip
from wm.report.plots import Curve, draw
from wm.seeding import integer
from wm.settings import VaeSettings
from wm.telemetry import metrics_log as metrics_file
from wm.training.fit import compiled, pick_precision, seconds_per_step, train_to_best
from wm.training.loop import Trainer
from wm.training.pinned_buffers import PinnedBuffers
from wm.training.warm_start import load_initial_weights, source_fingerprint
from wm.units import parse_size

RECIPE = 2
VALIDATION_FRAMES = 512
SAMPLE_FRAMES = 4096
PICTURED = 5


def _run(session: Session, settings: VaeSettings, datasets: list[Dataset]) -> Run:
    inputs = fingerprints(datasets) | source_fingerprint(settings, "vae")
    return session.make_run(stage_name(session, "vae"), "vae", RECIPE, settings.result_settings(), inputs)


def _model(shape: tuple[int, ...], settings: VaeSettings, seed: int) -> Vae:
    size, _, channels = shape
    with seeded_initialization(seed, "vae", "init"):
        return build(settings.network, size, channels, settings.latent)


def _objective(model: Vae, sample: Tensor, settings: VaeSettings, seed: int) -> VaeLoss:
    with seeded_initialization(seed, "vae", "reader"):
        return VaeLoss(
            model,
            sample,
            pixels=settings.reconstruction_nats,
            rarity=settings.pixel_weighting,
            moments=settings.position_targets,
            kl_tolerance=settings.kl_tolerance,
            orientation_targets=settings.orientation_targets,
            basis=settings.position_basis,
        ).to(sample.device)


def _ram(settings: VaeSettings) -> int:
    return psutil.virtual_memory().available // 4 if settings.ram == "auto" else parse_size(settings.ram)


def plan(session: Session, settings: VaeSettings) -> Plan:
    """What `train_vae` would do, with the time of a few real steps."""
    datasets = open_datasets(session.data_paths, settings.episodes)
    run = _run(session, settings, datasets)
    if run.current() is not None:
        return Plan("train-vae", run.folder, "up to date", 0, 0, (0, 0))
    found = estimate(session, settings, datasets[0].frame_shape, sum(dataset.rows for dataset in datasets))
    why = run.why_stale()
    return replace(found, target=run.folder, what=found.what + (f" ({why})" if why else ""))


def estimate(session: Session, settings: VaeSettings, shape: tuple[int, ...], rows: int) -> Plan:
    """The same for so many frames (height, width, channels) that need not be there yet."""
    device = torch.device(pick_device(session.device))
    frames = torch.randint(0, 256, (settings.batch, *shape), dtype=torch.uint8, device=device)
    model = _model(shape, settings, session.seed).to(device)
    objective = _objective(model, frames, settings, session.seed)
    noise = torch.zeros(settings.batch, settings.latent, device=device)

    def loss(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        return objective(frames, noise).total / max(settings.reconstruction_nats, 1), {}

    seconds = 1.15 * settings.steps * seconds_per_step(objective, loss, settings, device)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
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
    """Train V on the episodes and publish the best weights by validation loss, with a film strip of reconstructions."""
    began = time.monotonic()
    datasets = open_datasets(session.data_paths, settings.episodes)
    dataset, run = datasets[0], _run(session, settings, datasets)
    if (current := run.current()) is not None:
        return up_to_date("train-vae", current, _summary(current))
    device = torch.device(pick_device(session.device))
    model = _model(dataset.frame_shape, settings, session.seed).to(device)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    session.budget(run.folder).require(13 * size + 2_000_000, 0, "training V")
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("train-vae", builder.restored, _summary(builder.restored), "restored")
        helds = [held_out(dataset.table["seed"], settings.validation_share) for dataset in datasets]
        parts = batch_sizes(settings.batch, settings.mixture, datasets)
        ram, rows = _ram(settings), sum(dataset.rows for dataset in datasets)
        batches = FrameMixture(
            [
                FrameBatches(some, ~held, part, session.seed, ram * some.rows // rows)
                for some, held, part in zip(datasets, helds, parts, strict=True)
            ]
        )
        spared = [held if held.any() else ~held for held in helds]
        validation = _spread_frames(datasets, spared, parts, VALIDATION_FRAMES)
        sample = torch.from_numpy(_spread_frames(datasets, [~held for held in helds], parts, SAMPLE_FRAMES)).to(device)
        model.look_at(sample)
        load_initial_weights(settings, "vae", model)
        objective = _objective(model, sample, settings, session.seed)
        staging = PinnedBuffers((settings.batch, *dataset.frame_shape), device)
        precision = pick_precision(settings, device)
        run_objective = compiled(objective, settings)

        def noise(*path: int | str, count: int) -> Tensor:
            source = torch.Generator().manual_seed(integer(session.seed, "vae", *path))
            return torch.randn(count, settings.latent, generator=source).to(device)

        def loss(number: int) -> tuple[Tensor, dict[str, Tensor]]:
            frames = staging.send(len(batches.at(number, staging.empty())))
            found = run_objective(frames, noise("noise", number, count=len(frames)))
            told = {"loss": found.total, "error": found.error, "kl": found.divergence, "moments": found.moments}
            return found.total / max(settings.reconstruction_nats, 1), told

        @torch.inference_mode()
        def validate() -> dict[str, float]:
            found = []
            for part in torch.from_numpy(validation).split(64):
                with precision.cast():
                    found.append(objective(part.to(device), noise("validation", count=len(part))))
            names = ("loss", "error", "kl", "moments")
            means = (torch.stack(column).mean().item() for column in zip(*found, strict=True))
            return {f"validation_{name}": mean for name, mean in zip(names, means, strict=True)}

        trainer = Trainer(
            objective, loss, precision, steps=settings.steps, learning_rate=settings.learning_rate,
            clip=settings.clip, accumulate=settings.accumulate,
        )  # fmt: skip
        figures = train_to_best(
            session, builder.folder, f"train-vae {session.env}", trainer, validate, batches.about, settings,
            lambda: batches.nbytes,
        )  # fmt: skip
        metrics: dict[str, Any] = {
            **figures,
            "mean_picture_error": _mean_picture_error(validation),
            "images_per_second": round(figures["steps_per_second"] * settings.batch * settings.accumulate, 1),
            "precision": precision.name,
            "episodes": dataset.upto,
            "rows": rows,
            "parameters": size // 4,
        }
        model.cpu()
        untrained = _model(dataset.frame_shape, settings, session.seed)
        untrained.look_at(sample.cpu())
        readings = probe(dataset, helds[0], model, untrained, session.seed)
        metrics["probe"] = {name: reading.as_json() for name, reading in readings.items()}
        metrics["probe_summary"] = judge(readings, EnvConfig(**dataset.recipe["env"]), settings.require_probe)
        _write(builder.folder, model, dataset, settings, validation, session.env)
        artifact = builder.publish(metrics, session.provenance(began, EnvConfig(**dataset.recipe["env"])))
    return made("train-vae", builder, artifact, _summary(artifact))


def _summary(artifact: Artifact) -> str:
    found = artifact.metrics
    return (
        f"squared error {found['validation_error']:.1f} a frame on held-out episodes "
        f"(always showing the mean picture: {found['mean_picture_error']:.1f}), KL {found['validation_kl']:.1f} nats, "
        f"best at step {found['best_step']}" + (f"; {found['probe_summary']}" if found.get("probe_summary") else "")
    )


def _spread_frames(
    datasets: list[Dataset], chosen: list[NDArray[np.bool_]], parts: list[int], count: int
) -> NDArray[np.uint8]:
    """Up to `count` frames, evenly from the chosen episodes of each dataset, in proportion to its part of a batch."""
    found = []
    for dataset, some, part in zip(datasets, chosen, parts, strict=True):
        reader = FrameReader(dataset)
        rows = spread_rows(dataset, some, count * part // sum(parts))
        found += [reader.read(int(row), int(row) + 1) for row in rows]
    return np.concatenate(found)


def _mean_picture_error(frames: NDArray[np.uint8]) -> float:
    pictures = frames.astype(np.float32) / 255
    return float(np.square(pictures - pictures.mean(axis=0)).sum(axis=(1, 2, 3)).mean())


def _write(
    folder: Path,
    model: Vae,
    dataset: Dataset,
    settings: VaeSettings,
    validation: NDArray[np.uint8],
    env: str,
) -> None:
    """Weights, shape and pictures."""
    config = VaeConfig(settings.network, model.size, model.channels, model.latent, dataset.recipe["env"])
    save_vae(folder, config, model)
    with torch.inference_mode():
        drawn = np.concatenate(
            [to_frames(model.decode(model.encode(part)[0])).numpy() for part in torch.from_numpy(validation).split(64)]
        )
    error = np.square((validation.astype(np.float32) - drawn) / 255).sum(axis=(1, 2, 3))
    order = np.argsort(error, kind="stable")
    middle = len(order) // 2
    typical = order[max(middle - PICTURED // 2, 0) : middle + PICTURED // 2 + 1][:PICTURED]
    chosen = np.concatenate([typical, order[-PICTURED:]])
    captions = [f"typical {error[i]:.1f}" for i in typical] + [f"hardest {error[i]:.1f}" for i in order[-PICTURED:]]
    rows = [
        ("real", validation[chosen]),
        ("V", drawn[chosen]),
        ("error x 4", error_map(validation[chosen], drawn[chosen])),
    ]
    title = f"{env}: reconstructions of held-out frames, with their squared error"
    strip = film_strip(rows, captions, title)
    durable.write_bytes(folder / "reconstructions.png", strip)
    metrics_file.show_picture(folder, settings.steps, "reconstructions", strip)
    lines = metrics_file.read(folder)
    curves = [
        Curve(name, [line["step"] for line in lines if key in line], [line[key] for line in lines if key in line])
        for name, key in (("training", "loss"), ("validation", "validation_loss"))
    ]
    durable.write_bytes(folder / "loss.png", draw(curves, f"{env}: V", "step", "loss (nats)"))
