"""Latents -> M."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wm.artifacts import runs
from wm.artifacts.runs import Artifact, Builder, Run
from wm.episodes.archive import collecting_seconds
from wm.episodes.dataset import Dataset
from wm.episodes.latents import join, read_latents
from wm.episodes.lives import cut_at_lost_lives
from wm.episodes.mixture import batch_sizes, distinct, open_datasets
from wm.episodes.split import validation_mask
from wm.errors import RecipeMismatch, UsageProblem
from wm.evaluation.linear_probe import velocities
from wm.evaluation.position_probe import visible_positions
from wm.evaluation.prediction import evaluate_predictions, format_predictions
from wm.pipeline.encode import encode, latents_run
from wm.pipeline.session import Session, stage_name
from wm.pipeline.stage import Result, run_stage
from wm.pretrained import TrainedVae, load_vae, save_mdnrnn
from wm.report.conclusions import HELD_OUT, event_conclusion, prediction_conclusion
from wm.report.training_pictures import save_mdnrnn_picture
from wm.settings import MdnRnnSettings
from wm.training.cost import publishing_bytes, weight_bytes
from wm.training.device import device_name, pick_device
from wm.training.fit import pick_precision
from wm.training.mdnrnn import (
    copy_normalization,
    fit_mdnrnn,
    fit_normalization,
    fit_residuals,
    mdnrnn_config,
    new_mdnrnn,
    training_windows,
    validation_count,
    validation_windows,
)
from wm.training.warm_start import load_initial_weights, source_fingerprint

# Raised by each change after which the same settings give another M.
RECIPE = 9


def open_inputs(session: Session, settings: MdnRnnSettings) -> tuple[list[Dataset], TrainedVae]:
    """The datasets, of the first the episodes that V was trained on, and V: this run's, or else that of
    `--init-from`. Raises UsageProblem for a mixture or a batch that does not fit them, and RecipeMismatch for a V
    whose latents the M of `--init-from` does not know."""
    vae = load_vae(_vae_folder(session, settings), session.workspace.command("train-vae"))
    datasets = open_datasets(session.env, session.data_paths)
    episodes = int(vae.artifact.metrics["episodes"])
    if episodes < datasets[0].upto:
        datasets[0] = datasets[0].first(episodes)
    for dataset in datasets:
        vae.require_dataset(dataset)
    _require_names([dataset.path for dataset in datasets[1:]])
    batch_sizes(settings.batch, settings.mixture, datasets, settings.later_weight)
    return datasets, vae


def _vae_folder(session: Session, settings: MdnRnnSettings) -> Path:
    own = session.run_path / "vae"
    if not settings.init_from:
        return own
    source = Path(settings.init_from) / "vae"
    if not own.exists() or not source.exists():
        return source if source.exists() else own
    command = session.workspace.command("train-vae")
    mine, theirs = (runs.load(folder, "vae", command) for folder in (own, source))
    if theirs.fingerprint in (mine.fingerprint, mine.inputs.get("init_from")):
        return own
    if settings.source_vae:
        return source
    raise RecipeMismatch(
        f"{own} is another V than {source}, whose latents the M of --init-from was trained on; add "
        "--set source_vae=true to take that V (this run's moves to the archive), or leave --init-from out."
    )


def _take_inputs(session: Session, settings: MdnRnnSettings, vae: TrainedVae, latents: Sequence[Run]) -> None:
    """Copy V of the run of `--init-from` where this run has none or another, and its latents of the same episodes:
    encoding them again would take minutes."""
    log, source = session.runtime.log, Path(str(settings.init_from))
    if vae.artifact.folder.parent != session.run_path:
        recipe = vae.artifact.manifest["recipe"]
        run = session.make_run("vae", "vae", recipe["recipe"], recipe["settings"], recipe["inputs"], seeded=False)
        run.take(vae.artifact, session.keep_current, log)
    for run in latents:
        artifact = replace(run, root=source).current()
        if artifact is not None and run.current() is None:
            run.take(artifact, session.keep_current, log)


def _require_names(paths: Sequence[Path]) -> None:
    """Raise UsageProblem for two datasets of one name after the first: their latents would have the same folder."""
    for number, path in enumerate(paths):
        if other := next((earlier for earlier in paths[:number] if earlier.stem == path.stem), None):
            raise UsageProblem(
                f"--data has {other} and {path}, whose latents would have the same folder; rename one of them, or "
                "write both to one dataset with wm data merge."
            )


def require_used(session: Session, settings: MdnRnnSettings, chosen: Collection[str]) -> None:
    """Raise UsageProblem for a weight of later datasets where there are none. `chosen` are the settings of this call:
    those of presets and files hold for curricula of several rounds, too."""
    if "later_weight" in chosen and len(distinct(session.data_paths)) == 1:
        raise UsageProblem(
            f"--set later_weight is {settings.later_weight:g} but there is one dataset; give later ones with --data, "
            "or leave it out."
        )


def mdnrnn_run(session: Session, settings: MdnRnnSettings, latents: list[Run], vae: TrainedVae) -> Run:
    """The place of M in a run, for V and these latents."""
    inputs = {run.folder.name: run.recipe.fingerprint for run in latents} | {"vae": vae.artifact.fingerprint}
    inputs |= source_fingerprint(settings.init_from, "mdnrnn", session.env)
    name = stage_name(session, "mdnrnn", settings.init_from)
    return session.make_run(name, "mdnrnn", RECIPE, settings.result_settings(), inputs)


def train_mdnrnn(session: Session, settings: MdnRnnSettings) -> Result:
    """Encode the episodes where latents are missing, train M, and publish the best weights by validation loss with a
    comparison to baselines."""
    datasets, vae = open_inputs(session, settings)
    latents = [latents_run(session, dataset, vae) for dataset in datasets]
    label, seed, runtime = f"train-mdnrnn {session.env}", session.seed, session.runtime
    if settings.init_from and session.leads:
        _take_inputs(session, settings, vae, latents)
    encoded = [encode(session, dataset, vae) for dataset in datasets]
    folders = [result.path for result in encoded]
    of_vae = {datasets[0].fingerprint, *vae.artifact.inputs.values()}  # V has the time of these
    times = {
        "collecting_seconds": sum(
            collecting_seconds(dataset.path) for dataset in datasets if dataset.fingerprint not in of_vae
        ),
        "encoding_seconds": sum(each.seconds for each in encoded),
    }
    config = mdnrnn_config(settings, vae.model.latent, datasets[0].actions)

    def work(builder: Builder) -> dict[str, Any]:
        parts, device = [read_latents(path) for path in folders], pick_device(session.device)
        parts = cut_at_lost_lives(settings.network, parts)
        joined = join(parts)
        model = new_mdnrnn(config, seed)
        fit_normalization(model, joined)
        load_initial_weights(settings.init_from, "mdnrnn", session.env, model)
        model.to(device)
        precision = pick_precision(settings.precision, device, model, tf32=settings.tf32)
        counts = settings.batch, validation_count(settings.network)
        sizes, held_out = (batch_sizes(n, settings.mixture, datasets, settings.later_weight) for n in counts)
        windows = training_windows(settings, parts, sizes, seed)
        validation = validation_windows(settings, parts, held_out, seed)
        mask = np.concatenate([validation_mask(part.seeds, settings.validation_share) for part in parts])
        scores = fit_mdnrnn(runtime, builder.folder, label, settings, windows, validation, model, seed, precision)
        # On the CPU, because acting and dreams run there, with packed weights.
        model.cpu().eval()
        fit_residuals(model, validation, settings.warm_up)
        # The same initial weights as M's: the probe of z and h then shows what training added.
        untrained = new_mdnrnn(config, seed)
        copy_normalization(model, untrained)
        predictions = evaluate_predictions(
            model, untrained, joined, mask, velocities(datasets), visible_positions(datasets)
        )
        save_mdnrnn(builder.folder, config, model)
        save_mdnrnn_picture(builder.folder, session.env, settings.network)
        collected = sum(dataset.env_steps for dataset in datasets)
        figures = {"rows": joined.rows, "collected_steps": collected, "precision": precision.name}
        # Four bytes a parameter.
        figures |= {"trained_on": device_name(device), "parameters": weight_bytes(model) // 4}
        return {**scores, **predictions, **figures, **times}

    run, need = mdnrnn_run(session, settings, latents, vae), publishing_bytes(new_mdnrnn(config, seed))
    result = run_stage(session, "train-mdnrnn", run, (need, "training M"), _summary, work, vae.env)
    conclusions = prediction_conclusion(result.metrics["open_loop"], HELD_OUT), event_conclusion(result.metrics)
    return replace(
        result,
        table=format_predictions(result.metrics),
        verdict=" ".join(filter(None, conclusions)),
        seconds=result.seconds + sum(each.seconds for each in encoded),
    )


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    text = (
        f"next z on held-out episodes: squared error {metrics['error']:.3f} "
        f"(linear {metrics['error_linear']:.3f}, persistence "
        f"{metrics['error_persistence']:.3f}, mean {metrics['error_mean']:.3f}), NLL {metrics['nll']:.2f} nats per "
        f"dimension (linear {metrics['nll_linear']:.2f}). {prediction_conclusion(metrics['open_loop'], HELD_OUT)}"
    )
    return text.rstrip()
