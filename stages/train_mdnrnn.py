"""`wm train-mdnrnn`: latents -> M."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stages.encode import encode, latents_run
from stages.session import Session, stage_name
from stages.stage import Plan, Result, plan_stage, run_stage
from wm.artifacts import durable, runs
from wm.artifacts.runs import Artifact, Run
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents, join, read_latents
from wm.episodes.mixture import WindowMixture, batch_sizes, open_datasets
from wm.episodes.split import validation_mask
from wm.episodes.windows import WindowBatch, Windows
from wm.evaluation.linear_probe import velocities
from wm.evaluation.prediction import evaluate_predictions, format_predictions
from wm.models.initialization import seeded_initialization
from wm.models.mdnrnn.network import MdnRnn
from wm.pretrained import MdnRnnConfig, TrainedVae, load_vae, save_mdnrnn
from wm.report.training_pictures import metric_curves
from wm.seeding import integer
from wm.settings import MdnRnnSettings
from wm.training.device import pick_device
from wm.training.fit import compile_if_asked, fit, make_trainer, pick_precision, seconds_per_step
from wm.training.precision import Precision
from wm.training.warm_start import load_initial_weights, source_fingerprint

RECIPE = 3
VALIDATION_WINDOWS = 64
MIN_REWARD_STD = 1e-3
_CURVES = {"training": "nll", "validation": "validation_nll"}


def plan(session: Session, settings: MdnRnnSettings) -> Plan:
    """What `train_mdnrnn` would do, with the time of a few real steps."""
    datasets, vae = _open(session, settings)
    run = _run(session, settings, [latents_run(session, dataset, vae) for dataset in datasets], vae)
    rows, width = sum(dataset.rows for dataset in datasets), datasets[0].actions.width
    return plan_stage("train-mdnrnn", run, lambda: estimate(session, settings, vae.model.latent, width, rows))


def estimate(session: Session, settings: MdnRnnSettings, latent: int, width: int, rows: int) -> Plan:
    """The plan for so many frames of `latent` numbers and actions `width` wide, which need not exist yet."""
    device = pick_device(session.device)
    model = _model(latent, width, settings, session.seed).to(device)
    z = torch.zeros(settings.batch, settings.seq_len, latent, device=device)
    actions = torch.zeros(settings.batch, settings.seq_len, width, device=device)
    flat = torch.zeros(settings.batch, settings.seq_len, device=device)

    def loss(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        return model.loss(z, actions, z, flat, flat, flat + 1).total, {}

    seconds = seconds_per_step(session.runtime.clock, model, loss, settings, device)
    seconds = 1.2 * settings.steps * seconds + rows / 5000
    size = _parameter_bytes(model)
    return Plan(
        "train-mdnrnn",
        session.run_path / stage_name(session, "mdnrnn"),
        f"{settings.steps} steps of {settings.batch} x {settings.seq_len}",
        size + rows * latent * 3 + 200_000,
        400_000_000 + 13 * size + rows * latent * 20,
        (seconds, seconds),
        rows,
        scratch=12 * size,
        latents=rows * latent * 3,
    )


def train_mdnrnn(session: Session, settings: MdnRnnSettings) -> Result:
    """Encode the episodes where latents are missing, train M, and publish the best weights by validation loss with a
    comparison to baselines."""
    datasets, vae = _open(session, settings)
    latents = [latents_run(session, dataset, vae) for dataset in datasets]
    if settings.init_from:
        _copy_source(session, latents, vae, Path(settings.init_from))
    folders = [encode(session, dataset, vae).path for dataset in datasets]
    size = _parameter_bytes(_model(vae.model.latent, datasets[0].actions.width, settings, session.seed))
    result = run_stage(
        session,
        "train-mdnrnn",
        _run(session, settings, latents, vae),
        (13 * size + 1_000_000, "training M"),
        _summary,
        lambda builder: _train(session, settings, datasets, [read_latents(path) for path in folders], builder.folder),
        vae.env,
    )
    return replace(result, table=format_predictions(result.metrics))


def _open(session: Session, settings: MdnRnnSettings) -> tuple[list[Dataset], TrainedVae]:
    """The datasets, of the first the episodes that V was trained on, and V: this run's, or else that of
    `--init-from`."""
    folder = session.run_path / "vae"
    if settings.init_from and not folder.exists():
        folder = Path(settings.init_from) / "vae"
    vae = load_vae(folder, session.command("train-vae"))
    datasets = open_datasets(session.data_paths)
    episodes = int(vae.artifact.metrics["episodes"])
    if episodes < datasets[0].upto:
        datasets[0] = datasets[0].first(episodes)
    for dataset in datasets:
        vae.require_frames(dataset.path, dataset.recipe["env"]["name"], dataset.frame_shape)
    return datasets, vae


def _copy_source(session: Session, latents: list[Run], vae: TrainedVae, source: Path) -> None:
    """Copy V where this run has none, and latents of the same episodes: encoding them again would take minutes."""
    log = session.runtime.log
    if vae.artifact.folder.parent != session.run_path:
        log(f"train-mdnrnn {session.env}: copies V from {vae.artifact.folder}")
        runs.copy(vae.artifact, session.run_path / "vae")
    for run in latents:
        artifact = replace(run, root=source).current()
        if artifact is not None and not run.folder.exists():
            log(f"train-mdnrnn {session.env}: copies latents from {artifact.folder}")
            runs.copy(artifact, run.folder)


def _run(session: Session, settings: MdnRnnSettings, latents: list[Run], vae: TrainedVae) -> Run:
    inputs = {run.folder.name: run.recipe.fingerprint for run in latents} | {"vae": vae.artifact.fingerprint}
    inputs |= source_fingerprint(settings, "mdnrnn")
    return session.make_run(stage_name(session, "mdnrnn"), "mdnrnn", RECIPE, settings.result_settings(), inputs)


def _model(latent: int, width: int, settings: MdnRnnSettings, seed: int) -> MdnRnn:
    with seeded_initialization(seed, "mdnrnn", "init"):
        return MdnRnn(latent, width, settings.hidden, settings.mixtures, settings.end_weight)


def _parameter_bytes(model: MdnRnn) -> int:
    return 4 * sum(parameter.numel() for parameter in model.parameters())


def _train(
    session: Session, settings: MdnRnnSettings, datasets: list[Dataset], parts: list[Latents], folder: Path
) -> dict[str, Any]:
    latents, device = join(parts), pick_device(session.device)
    latent, width = latents.means.shape[1], latents.space.width
    model = _model(latent, width, settings, session.seed)
    model.reward_mean.fill_(float(latents.rewards.mean()))
    model.reward_std.fill_(max(float(latents.rewards.std()), MIN_REWARD_STD))
    load_initial_weights(settings, "mdnrnn", model)
    model.to(device)
    precision = pick_precision(settings, device)
    windows = WindowMixture(
        [
            Windows(part, ~validation_mask(part.seeds, settings.validation_share), settings.seq_len, size, session.seed)
            for part, size in zip(parts, batch_sizes(settings.batch, settings.mixture, datasets), strict=True)
        ]
    )
    mask = validation_mask(latents.seeds, settings.validation_share)
    scores = _fit(session, settings, windows, _validation_batch(session, settings, latents, mask), model, precision,
                  folder)  # fmt: skip
    model.cpu().eval()
    untrained = _model(latent, width, settings, session.seed)
    metrics = {
        **scores,
        **evaluate_predictions(model, untrained, latents, mask, _velocities(datasets)),
        "rows": latents.rows,
        "precision": precision.name,
    }
    config = MdnRnnConfig(latent, latents.space.as_json(), settings.hidden, settings.mixtures, settings.end_weight)
    save_mdnrnn(folder, config, model)
    curves = metric_curves(folder, _CURVES, f"{session.env}: M", "NLL of the next z, per dimension (nats)")
    durable.write_bytes(folder / "loss.png", curves)
    return metrics


def _validation_batch(
    session: Session, settings: MdnRnnSettings, latents: Latents, mask: NDArray[np.bool_]
) -> WindowBatch:
    episodes, seed = mask if mask.any() else ~mask, integer(session.seed, "validation")
    return Windows(latents, episodes, settings.seq_len, VALIDATION_WINDOWS, seed).at(0)


def _fit(
    session: Session,
    settings: MdnRnnSettings,
    windows: WindowMixture,
    validation: WindowBatch,
    model: MdnRnn,
    precision: Precision,
    folder: Path,
) -> dict[str, float]:
    """Train the model to its best validation loss; returns the scores."""
    run_loss = compile_if_asked(model.loss, settings)

    def batch_loss(batch: WindowBatch, noise: float, *path: int | str) -> tuple[Tensor, dict[str, Tensor]]:
        random = torch.Generator().manual_seed(integer(session.seed, "mdnrnn", *path))
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

    trainer, label = make_trainer(model, loss, precision, settings), f"train-mdnrnn {session.env}"
    return fit(session.runtime, folder, label, trainer, validate, windows.describe, settings)


def _velocities(datasets: list[Dataset]) -> dict[str, NDArray[np.float64]]:
    """(rows,) of every motion that the labels have, over all datasets."""
    parts = [velocities(dataset) for dataset in datasets]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


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


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    return (
        f"next z on held-out episodes: squared error {metrics['error']:.3f} (persistence "
        f"{metrics['error_persistence']:.3f}, mean {metrics['error_mean']:.3f}), NLL {metrics['nll']:.2f} nats per "
        f"dimension (linear {metrics['nll_linear']:.2f})"
    )
