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
from wm.episodes.mixture import batch_sizes, open_datasets
from wm.episodes.split import validation_mask
from wm.evaluation.linear_probe import velocities
from wm.evaluation.prediction import evaluate_predictions, format_predictions
from wm.models.mdnrnn.network import MdnRnn
from wm.pretrained import MdnRnnConfig, TrainedVae, load_vae, save_mdnrnn
from wm.report.training_pictures import metric_curves
from wm.settings import MdnRnnSettings
from wm.training.device import pick_device
from wm.training.fit import pick_precision, seconds_per_step
from wm.training.mdnrnn import (
    fit_mdnrnn,
    fit_reward_normalization,
    new_mdnrnn,
    training_windows,
    validation_windows,
)
from wm.training.warm_start import load_initial_weights, source_fingerprint

RECIPE = 3
OVERHEAD = 1.2  # of validations and checkpoints on the time of the steps
ENCODED_PER_SECOND = 5000  # frames
PROCESS_BYTES = 400_000_000  # of a process with torch
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
    model = new_mdnrnn(settings, latent, width, session.seed).to(device)
    z = torch.zeros(settings.batch, settings.seq_len, latent, device=device)
    actions = torch.zeros(settings.batch, settings.seq_len, width, device=device)
    flat = torch.zeros(settings.batch, settings.seq_len, device=device)

    def loss(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        return model.loss(z, actions, z, flat, flat, flat + 1).total, {}

    seconds = OVERHEAD * settings.steps * seconds_per_step(session.runtime.clock, model, loss, settings, device)
    seconds += rows / ENCODED_PER_SECOND
    size = _parameter_bytes(model)
    return Plan(
        "train-mdnrnn",
        session.run_path / stage_name(session, "mdnrnn"),
        f"{settings.steps} steps of {settings.batch} x {settings.seq_len}",
        size + rows * latent * 3 + 200_000,
        PROCESS_BYTES + 13 * size + rows * latent * 20,
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
    size = _parameter_bytes(new_mdnrnn(settings, vae.model.latent, datasets[0].actions.width, session.seed))
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
    vae = load_vae(folder, session.workspace.command("train-vae"))
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


def _parameter_bytes(model: MdnRnn) -> int:
    return 4 * sum(parameter.numel() for parameter in model.parameters())


def _train(
    session: Session, settings: MdnRnnSettings, datasets: list[Dataset], parts: list[Latents], folder: Path
) -> dict[str, Any]:
    latents, device = join(parts), pick_device(session.device)
    latent, width = latents.means.shape[1], latents.space.width
    model = new_mdnrnn(settings, latent, width, session.seed)
    fit_reward_normalization(model, latents)
    load_initial_weights(settings, "mdnrnn", model)
    model.to(device)
    precision = pick_precision(settings, device)
    windows = training_windows(settings, parts, batch_sizes(settings.batch, settings.mixture, datasets), session.seed)
    mask = validation_mask(latents.seeds, settings.validation_share)
    validation = validation_windows(settings, latents, mask, session.seed)
    label = f"train-mdnrnn {session.env}"
    scores = fit_mdnrnn(session.runtime, folder, label, settings, windows, validation, model, session.seed, precision)
    model.cpu().eval()
    untrained = new_mdnrnn(settings, latent, width, session.seed)
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


def _velocities(datasets: list[Dataset]) -> dict[str, NDArray[np.float64]]:
    """(rows,) of every motion that the labels have, over all datasets."""
    parts = [velocities(dataset) for dataset in datasets]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    return (
        f"next z on held-out episodes: squared error {metrics['error']:.3f} (persistence "
        f"{metrics['error_persistence']:.3f}, mean {metrics['error_mean']:.3f}), NLL {metrics['nll']:.2f} nats per "
        f"dimension (linear {metrics['nll_linear']:.2f})"
    )
