"""`wm train-mdnrnn`: latents -> M."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stages import console
from stages.encode import check_frames, encode, latents_run
from stages.session import Session, pick_device, stage_name
from stages.stage import Plan, Result, made, up_to_date
from wm.artifacts import durable, runs
from wm.artifacts.runs import Artifact, Run
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import held_out
from wm.episodes.latents import Latents, join, read_latents
from wm.episodes.mixture import WindowMixture, batch_sizes, open_datasets
from wm.episodes.windows import WindowBatch, Windows
from wm.evaluation.linear_probe import velocities
from wm.evaluation.prediction import compare, table
from wm.models.initialization import seeded_initialization
from wm.models.mdnrnn.network import MdnRnn
from wm.pretrained import MdnRnnConfig, TrainedVae, load_vae, save_mdnrnn
from wm.report.plots import Curve, draw
from wm.seeding import integer
from wm.settings import MdnRnnSettings
from wm.telemetry import metrics_log as metrics_file
from wm.training.fit import compiled, pick_precision, seconds_per_step, train_to_best
from wm.training.loop import Trainer
from wm.training.warm_start import load_initial_weights, source_fingerprint

RECIPE = 3
VALIDATION_WINDOWS = 64


def _open(session: Session, settings: MdnRnnSettings) -> tuple[list[Dataset], TrainedVae]:
    """V, of the run to go on from where this one has none, and the datasets, of the first of them the episodes V was
    trained on."""
    folder = session.run_path / "vae"
    if settings.init_from and not folder.exists():
        folder = Path(settings.init_from) / "vae"
    vae = load_vae(folder, session.command("train-vae"))
    datasets = open_datasets(session.data_paths)
    episodes = int(vae.artifact.metrics["episodes"])
    if episodes < datasets[0].upto:
        datasets[0] = datasets[0].first(episodes)
    for dataset in datasets:
        check_frames(dataset, vae)
    return datasets, vae


def _take_over(session: Session, latents: Run, start: Path) -> None:
    """Copy latents of the same episodes and V from the run to go on from: seeing them again would take minutes."""
    there = replace(latents, root=start).current()
    if there is not None and not latents.folder.exists():
        console.say(f"train-mdnrnn {session.env}: latents are taken over from {there.folder}")
        runs.copy(there, latents.folder)


def _run(session: Session, settings: MdnRnnSettings, latents: list[Run], vae: TrainedVae) -> Run:
    inputs = {run.folder.name: run.recipe.fingerprint for run in latents} | {"vae": vae.artifact.fingerprint}
    inputs |= source_fingerprint(settings, "mdnrnn")
    return session.make_run(stage_name(session, "mdnrnn"), "mdnrnn", RECIPE, settings.result_settings(), inputs)


def _model(latent: int, action: int, settings: MdnRnnSettings, seed: int) -> MdnRnn:
    with seeded_initialization(seed, "mdnrnn", "init"):
        return MdnRnn(latent, action, settings.hidden, settings.mixtures, settings.end_weight)


def plan(session: Session, settings: MdnRnnSettings) -> Plan:
    """What `train_mdnrnn` would do, with the time of a few real steps."""
    datasets, vae = _open(session, settings)
    run = _run(session, settings, [latents_run(session, dataset, vae) for dataset in datasets], vae)
    if run.current() is not None:
        return Plan("train-mdnrnn", run.folder, "up to date", 0, 0, (0, 0))
    rows = sum(dataset.rows for dataset in datasets)
    found = estimate(session, settings, vae.model.latent, datasets[0].actions.width, rows)
    why = run.why_stale()
    return replace(found, target=run.folder, what=found.what + (f" ({why})" if why else ""))


def estimate(session: Session, settings: MdnRnnSettings, latent: int, width: int, rows: int) -> Plan:
    """The same for so many frames as `latent` numbers, and actions `width` wide, that need not be there yet."""
    device = torch.device(pick_device(session.device))
    model = _model(latent, width, settings, session.seed).to(device)
    z = torch.zeros(settings.batch, settings.seq_len, latent, device=device)
    actions = torch.zeros(settings.batch, settings.seq_len, width, device=device)
    flat = torch.zeros(settings.batch, settings.seq_len, device=device)

    def loss(_: int) -> tuple[Tensor, dict[str, Tensor]]:
        return model.loss(z, actions, z, flat, flat, flat + 1).total, {}

    seconds = 1.2 * settings.steps * seconds_per_step(model, loss, settings, device) + rows / 5000
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
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
    """Encode if need be, train M, and publish the best weights by validation loss with what it is compared to."""
    result = _train(session, settings)
    return replace(result, table=table(result.metrics))


def _train(session: Session, settings: MdnRnnSettings) -> Result:
    began = time.monotonic()
    datasets, vae = _open(session, settings)
    coming = [latents_run(session, dataset, vae) for dataset in datasets]
    run = _run(session, settings, coming, vae)
    if all(part.current() is not None for part in coming) and (current := run.current()) is not None:
        return up_to_date("train-mdnrnn", current, _summary(current))
    if vae.artifact.folder.parent != session.run_path:
        console.say(f"train-mdnrnn {session.env}: V is taken over from {vae.artifact.folder}")
        runs.copy(vae.artifact, session.run_path / "vae")
    if settings.init_from:
        for part in coming:
            _take_over(session, part, Path(settings.init_from))
    parts = [read_latents(encode(session, dataset, vae).path) for dataset in datasets]
    latents = join(parts)
    device = torch.device(pick_device(session.device))
    model = _model(vae.model.latent, latents.space.width, settings, session.seed)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    session.budget(run.folder).require(13 * size + 1_000_000, 0, "training M")
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("train-mdnrnn", builder.restored, _summary(builder.restored), "restored")
        held = held_out(latents.seeds, settings.validation_share)
        model.reward_mean.fill_(float(latents.rewards.mean()))
        model.reward_std.fill_(max(float(latents.rewards.std()), 1e-3))
        load_initial_weights(settings, "mdnrnn", model)
        model.to(device)
        windows = WindowMixture(
            [
                Windows(some, ~held_out(some.seeds, settings.validation_share), settings.seq_len, part, session.seed)
                for some, part in zip(parts, batch_sizes(settings.batch, settings.mixture, datasets), strict=True)
            ]
        )
        spared = held if held.any() else ~held
        validation = Windows(latents, spared, settings.seq_len, VALIDATION_WINDOWS, integer(session.seed, "validation"))
        fixed = validation.at(0)
        precision = pick_precision(settings, device)
        run_loss = compiled(model.loss, settings)

        def found(batch: WindowBatch, noise: float, *path: int | str) -> tuple[Tensor, dict[str, Tensor]]:
            source = torch.Generator().manual_seed(integer(session.seed, "mdnrnn", *path))
            losses = run_loss(*(tensor.to(device) for tensor in loss_arguments(batch, noise, source)))
            return losses.total, {"loss": losses.total, "nll": losses.nll, "reward": losses.reward, "end": losses.end}

        @torch.inference_mode()
        def validate() -> dict[str, float]:
            with precision.cast():
                _, figures = found(fixed, 0.0, "validation")
            return {f"validation_{name}": value.item() for name, value in figures.items()}

        def loss(number: int) -> tuple[Tensor, dict[str, Tensor]]:
            return found(windows.at(number), input_noise(number // settings.accumulate, settings), "noise", number)

        trainer = Trainer(
            model, loss, precision, steps=settings.steps,
            learning_rate=settings.learning_rate, clip=settings.clip, accumulate=settings.accumulate,
        )  # fmt: skip
        figures = train_to_best(
            session, builder.folder, f"train-mdnrnn {session.env}", trainer, validate, windows.about, settings
        )
        model.cpu().eval()
        untrained = _model(vae.model.latent, latents.space.width, settings, session.seed)
        metrics = {
            **figures,
            **compare(model, untrained, latents, held, _velocities(datasets)),
            "rows": latents.rows,
            "precision": precision.name,
        }
        _write(builder.folder, model, settings, latents, session.env)
        artifact = builder.publish(metrics, session.provenance(began, vae.env))
    return made("train-mdnrnn", builder, artifact, _summary(artifact))


def _velocities(datasets: list[Dataset]) -> dict[str, NDArray[np.float64]]:
    """(rows,) of every motion that the environment tells, over all datasets."""
    told = [velocities(dataset) for dataset in datasets]
    return {name: np.concatenate([some[name] for some in told]) for name in told[0]}


def input_noise(step: int, settings: MdnRnnSettings) -> float:
    """How much of q(z|frame)'s deviation the input z gets at a step: all, then falling to none over the last steps."""
    left = 1 - step / settings.steps
    return min(1.0, left / settings.noise_anneal) if settings.noise_anneal else 1.0


def loss_arguments(batch: WindowBatch, noise: float, source: torch.Generator) -> list[Tensor]:
    """Arguments of the loss: the input z is sampled anew from q(z|frame), its deviation times `noise`; the target is
    the mean C will see."""
    mean, logvar = torch.from_numpy(batch.means[:, :-1]), torch.from_numpy(batch.logvars[:, :-1])
    z = mean + noise * torch.exp(0.5 * logvar) * torch.randn(mean.shape, generator=source)
    rest = (batch.actions, batch.means[:, 1:], batch.rewards, batch.ends, batch.mask)
    return [z, *(torch.from_numpy(array) for array in rest)]


def _summary(artifact: Artifact) -> str:
    found = artifact.metrics
    return (
        f"next z on held-out episodes: squared error {found['error']:.3f} "
        f"(persistence {found['error_persistence']:.3f}, mean {found['error_mean']:.3f}), "
        f"NLL {found['nll']:.2f} a dimension (linear {found['nll_linear']:.2f})"
    )


def _write(folder: Path, model: MdnRnn, settings: MdnRnnSettings, latents: Latents, env: str) -> None:
    config = MdnRnnConfig(
        model.latent, latents.space.as_json(), settings.hidden, settings.mixtures, settings.end_weight
    )
    save_mdnrnn(folder, config, model)
    lines = metrics_file.read(folder)
    curves = [
        Curve(name, [line["step"] for line in lines if key in line], [line[key] for line in lines if key in line])
        for name, key in (("training", "nll"), ("validation", "validation_nll"))
    ]
    picture = draw(curves, f"{env}: M", "step", "NLL of the next z, per dimension (nats)")
    durable.write_bytes(folder / "loss.png", picture)
