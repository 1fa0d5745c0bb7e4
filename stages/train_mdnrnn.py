"""`wm train-mdnrnn`: latents -> M."""

from stages.session import Session
from wm.actions import ActionSpace
from wm.pipeline.encode import latents_run
from wm.pipeline.plan import Plan, plan_stage
from wm.pipeline.session import stage_name
from wm.pipeline.stage import Result
from wm.pipeline.train_mdnrnn import RECIPE, mdnrnn_run, open_inputs, require_used
from wm.pipeline.train_mdnrnn import train_mdnrnn as train
from wm.settings import MdnRnnSettings
from wm.training.cost import mdnrnn_cost
from wm.training.device import pick_device
from wm.training.mdnrnn import window_length

__all__ = ["RECIPE", "check", "estimate", "plan", "train_mdnrnn"]


def check(session: Session, settings: MdnRnnSettings) -> None:
    """Raise a WmError for settings that do not fit the inputs."""
    require_used(session, settings, session.typed)
    open_inputs(session, settings)


def plan(session: Session, settings: MdnRnnSettings) -> Plan:
    """What `train_mdnrnn` would do, with the time of a few real steps."""
    require_used(session, settings, session.typed)
    datasets, vae = open_inputs(session, settings)
    run = mdnrnn_run(session, settings, [latents_run(session, dataset, vae) for dataset in datasets], vae)
    rows, space = sum(dataset.rows for dataset in datasets), datasets[0].actions
    return plan_stage("train-mdnrnn", run, lambda: estimate(session, settings, vae.model.latent, space, rows))


def train_mdnrnn(session: Session, settings: MdnRnnSettings) -> Result:
    """Train M, as the library does it."""
    require_used(session, settings, session.typed)
    return train(session, settings)


def estimate(session: Session, settings: MdnRnnSettings, latent: int, space: ActionSpace, rows: int) -> Plan:
    """The plan for so many frames of `latent` numbers and these actions, which need not exist yet."""
    device = pick_device(session.device)
    cost = mdnrnn_cost(session.runtime.clock, settings, latent, space, rows, session.seed, device)
    return Plan(
        "train-mdnrnn",
        session.run_path / stage_name(session, "mdnrnn"),
        f"{settings.steps} steps of {settings.batch} x {window_length(settings)}",
        cost.disk,
        cost.memory,
        (cost.seconds, cost.seconds),
        rows,
        cost.scratch,
        cost.latents,
    )
