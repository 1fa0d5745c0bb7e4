"""`wm train-vae`: episodes -> V."""

from stages.session import Session
from wm.pipeline.plan import Plan, plan_stage
from wm.pipeline.session import stage_name
from wm.pipeline.train_vae import RECIPE, open_inputs, train_vae, vae_run
from wm.settings import VaeSettings
from wm.training.cost import vae_cost
from wm.training.device import pick_device
from wm.training.vae import new_vae

__all__ = ["RECIPE", "check", "estimate", "plan", "train_vae"]


def check(session: Session, settings: VaeSettings) -> None:
    """Raise a WmError for settings that do not fit the inputs."""
    shape = open_inputs(session, settings)[0].frame_shape
    new_vae(settings.network, settings.latent, shape, session.seed)


def plan(session: Session, settings: VaeSettings) -> Plan:
    """What `train_vae` would do, with the time of a few real steps."""
    datasets = open_inputs(session, settings)
    rows = sum(dataset.rows for dataset in datasets)
    run = vae_run(session, settings, datasets)
    return plan_stage("train-vae", run, lambda: estimate(session, settings, datasets[0].frame_shape, rows))


def estimate(session: Session, settings: VaeSettings, shape: tuple[int, ...], rows: int) -> Plan:
    """The plan for so many frames (height, width, channels), which need not exist yet."""
    device = pick_device(session.device)
    cost = vae_cost(session.runtime.clock, settings, shape, rows, session.seed, device)
    return Plan(
        "train-vae",
        session.run_path / stage_name(session, "vae"),
        f"{settings.steps} steps of {settings.batch} of {rows:,} frames, {settings.latent} latents",
        cost.disk,
        cost.memory,
        (cost.seconds, cost.seconds),
        rows,
        cost.scratch,
    )
