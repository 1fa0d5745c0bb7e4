"""Episodes + V -> latents: the first part of `wm train-mdnrnn`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from wm.artifacts.runs import Artifact, Builder, Run
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents
from wm.errors import BadData
from wm.models.vae.networks import Vae
from wm.pipeline.session import Session
from wm.pipeline.stage import Result, run_stage
from wm.pretrained import TrainedVae
from wm.training.device import pick_device
from wm.training.precision import pick

NAME, RECIPE = "latents", 3
BATCH = 64


def latents_run(session: Session, dataset: Dataset, vae: TrainedVae) -> Run:
    """The place of the latents of a dataset: `latents` for the first one, else with the dataset's name."""
    inputs = {"episodes": dataset.fingerprint, "vae": vae.artifact.fingerprint}
    name = NAME if dataset.path == session.data_paths[0] else f"{NAME}-{dataset.path.stem}"
    return session.make_run(name, "latents", RECIPE, {}, inputs, seeded=False)


def latents_in(run: Path) -> list[Path]:
    """The folders of latents in a run, of each of its datasets."""
    return sorted(path for path in run.glob(f"{NAME}*") if path.name == NAME or path.name.startswith(f"{NAME}-"))


def encode(session: Session, dataset: Dataset, vae: TrainedVae) -> Result:
    """Encode every frame once and publish mean and log-variance with actions, rewards and episode ends."""
    vae.require_dataset(dataset)

    def work(builder: Builder) -> dict[str, float]:
        start = session.runtime.clock()
        _encode(session, dataset, vae).save(builder.folder)
        speed = dataset.rows / (session.runtime.clock() - start)
        return {"rows": dataset.rows, "latent": vae.model.latent, "frames_per_second": round(speed)}

    need = dataset.rows * vae.model.latent * 6
    run = latents_run(session, dataset, vae)
    return run_stage(session, "encode", run, (need, "encoding"), _summary, work, vae.env)


def _encode(session: Session, dataset: Dataset, vae: TrainedVae) -> Latents:
    model, runtime = vae.model.to(pick_device(session.device)), session.runtime
    means = np.empty((dataset.rows, model.latent), np.float32)
    logvars = np.empty_like(means)
    with runtime.progress(f"encode {session.env}", dataset.rows, "frames") as progress:
        for start, mean, logvar in encode_frames(dataset, model):
            stop = start + len(mean)
            means[start:stop], logvars[start:stop] = mean, logvar
            progress.update(stop)
            runtime.raise_if_stopped()
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
def encode_frames(dataset: Dataset, model: Vae) -> Iterator[tuple[int, NDArray[np.float32], NDArray[np.float32]]]:
    """(first row, mean, log-variance) of every frame in turn, a batch at a time.

    In bf16 where the device has instructions for it: that moves a mean by a thirtieth of its deviation.
    """
    reader, device = FrameReader(dataset), model.mean_image.device
    precision = pick("auto", device)
    for start in range(0, dataset.rows, BATCH):
        frames = torch.from_numpy(reader.read(start, min(start + BATCH, dataset.rows)))
        with precision.cast():
            mean, logvar = model.encode(frames.to(device))
        yield start, mean.cpu().numpy(), logvar.cpu().numpy()


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    return f"{metrics['rows']:,} latents of {metrics['latent']} dimensions at {metrics['frames_per_second']:,} frames/s"
