"""Episodes + V -> latents: the first part of `wm train-mdnrnn`."""

from dataclasses import replace
from pathlib import Path

from wm.artifacts.runs import Artifact, Builder, Run
from wm.dreams.initial_states import LATENTS
from wm.episodes.dataset import Dataset
from wm.pipeline.lives import lost_lives
from wm.pipeline.session import Session
from wm.pipeline.stage import Result, run_stage
from wm.pretrained import TrainedVae
from wm.training.cost import LATENT_BYTES

# Raised when other latents follow from the same V and episodes; M and C are then made anew, too.
RECIPE = 4


def latents_run(session: Session, dataset: Dataset, vae: TrainedVae) -> Run:
    """The place of the latents of a dataset: `latents` for the first one, else with the dataset's name."""
    inputs = {"episodes": dataset.fingerprint, "vae": vae.artifact.fingerprint}
    name = LATENTS if dataset.path == session.data_paths[0] else f"{LATENTS}-{dataset.path.stem}"
    return session.make_run(name, "latents", RECIPE, {}, inputs, seeded=False)


def latents_in(run: Path) -> list[Path]:
    """The folders of latents in a run, of each of its datasets."""
    return sorted(
        path for path in run.glob(f"{LATENTS}*") if path.name == LATENTS or path.name.startswith(f"{LATENTS}-")
    )


def encode(session: Session, dataset: Dataset, vae: TrainedVae) -> Result:
    """Encode every frame once and publish mean and log-variance with actions, rewards and episode ends."""
    vae.require_dataset(dataset)

    def work(builder: Builder) -> dict[str, float]:
        start = session.runtime.clock()
        latents = vae.encode(dataset, session.runtime, f"encode {session.env}", session.device)
        replace(latents, lost=lost_lives(dataset)).save(builder.folder)
        speed = dataset.rows / (session.runtime.clock() - start)
        return {"rows": dataset.rows, "latent": vae.model.latent, "frames_per_second": round(speed)}

    need = dataset.rows * vae.model.latent * LATENT_BYTES
    run = latents_run(session, dataset, vae)
    return run_stage(session, "encode", run, (need, "encoding"), _summary, work, vae.env)


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    return f"{metrics['rows']:,} latents of {metrics['latent']} dimensions at {metrics['frames_per_second']:,} frames/s"
