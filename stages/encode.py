"""Episodes + V -> latents. Run by `wm train-mdnrnn` when they are missing; not a command of its own."""

import time
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from stages import console
from stages.session import Session, pick_device
from stages.stage import Result, made, up_to_date
from wm.artifacts.runs import Artifact, Run
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents
from wm.errors import BadData, RecipeMismatch
from wm.models.vae.networks import Vae
from wm.pretrained import TrainedVae
from wm.training.precision import pick

RECIPE = 2
BATCH = 64


def latents_run(session: Session, dataset: Dataset, vae: TrainedVae) -> Run:
    """The place of the latents of a dataset under a V: `latents`, or with its name for those beside the first."""
    inputs = {"episodes": dataset.fingerprint, "vae": vae.artifact.fingerprint}
    name = "latents" if dataset.path == session.data_paths[0] else f"latents-{dataset.path.stem}"
    return session.make_run(name, "latents", RECIPE, {}, inputs, seeded=False)


def check_frames(dataset: Dataset, vae: TrainedVae) -> None:
    """Raise RecipeMismatch unless V knows the frames of this environment, in this shape."""
    env = dataset.recipe["env"]["name"]
    if vae.env.name != env:
        raise RecipeMismatch(
            f"{vae.artifact.folder} is a VAE of {vae.env.name} but {dataset.path} has episodes of {env}; give the run "
            f"of {env} with --run, or run `wm train-vae --env {env} --data {dataset.path}`."
        )
    knows = (vae.model.size, vae.model.size, vae.model.channels)
    if dataset.frame_shape != knows:
        found, wanted = ("x".join(map(str, shape)) for shape in (dataset.frame_shape, knows))
        raise RecipeMismatch(
            f"{dataset.path} has frames of {found} but {vae.artifact.folder} was trained on {wanted}; "
            f"run `wm train-vae --env {dataset.recipe['env']['name']} --data {dataset.path}`."
        )


def encode(session: Session, dataset: Dataset, vae: TrainedVae) -> Result:
    """Encode every frame once and publish mean and log-variance with actions, rewards and episode ends."""
    began = time.monotonic()
    check_frames(dataset, vae)
    run = latents_run(session, dataset, vae)
    if (current := run.current()) is not None:
        return up_to_date("encode", current, _summary(current))
    session.budget(run.folder).require(dataset.rows * vae.model.latent * 6, 0, "encoding")
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("encode", builder.restored, _summary(builder.restored), "restored")
        _encode(session, dataset, vae).save(builder.folder)
        speed = dataset.rows / (time.monotonic() - began)
        metrics = {"rows": dataset.rows, "latent": vae.model.latent, "frames_per_second": round(speed)}
        artifact = builder.publish(metrics, session.provenance(began, vae.env))
    return made("encode", builder, artifact, _summary(artifact))


def _summary(artifact: Artifact) -> str:
    found = artifact.metrics
    return f"{found['rows']:,} latents of {found['latent']} dimensions at {found['frames_per_second']:,} frames/s"


def _encode(session: Session, dataset: Dataset, vae: TrainedVae) -> Latents:
    model = vae.model.to(pick_device(session.device))
    means = np.empty((dataset.rows, model.latent), np.float32)
    logvars = np.empty_like(means)
    with console.progress(f"encode {session.env}", dataset.rows, "frames") as progress:
        for start, mean, logvar in encoded(dataset, model):
            stop = start + len(mean)
            means[start:stop], logvars[start:stop] = mean, logvar
            progress.update(stop)
            session.stop.raise_if_stopped()
    model.cpu()
    rewards = dataset.column("rewards")
    if not np.isfinite(rewards).all():
        episode = int(np.searchsorted(dataset.ends, np.flatnonzero(~np.isfinite(rewards))[0], side="right"))
        raise BadData(
            f"{dataset.path} has a reward that is not a number in episode {episode}; collect it again into another "
            "place with --data, with an environment that gives finite rewards."
        )
    return Latents(
        means=means,
        logvars=logvars,
        actions=dataset.column("actions"),
        rewards=rewards,
        ends=dataset.ends,
        terminated=dataset.table["terminated"].astype(bool),
        seeds=dataset.table["seed"].astype(np.int64),
        space=dataset.actions,
    )


@torch.inference_mode()
def encoded(dataset: Dataset, model: Vae) -> Iterator[tuple[int, NDArray[np.float32], NDArray[np.float32]]]:
    """(first row, mean, log-variance) of every frame in turn, a batch at a time, in bf16 where there are instructions
    for it: that moves a mean by a thirtieth of its deviation."""
    reader, device = FrameReader(dataset), model.background.device
    precision = pick("auto", device)
    for start in range(0, dataset.rows, BATCH):
        frames = torch.from_numpy(reader.read(start, min(start + BATCH, dataset.rows)))
        with precision.cast():
            mean, logvar = model.encode(frames.to(device))
        yield start, mean.cpu().numpy(), logvar.cpu().numpy()
