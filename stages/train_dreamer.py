"""`wm train-dreamer`: a world model, an actor and a critic, trained while they act."""

from functools import partial

from stages.session import Session
from wm.artifacts.runs import Run
from wm.dreamer.cost import dreamer_cost
from wm.dreamer.environment import playing_env
from wm.pipeline.plan import Plan, plan_stage
from wm.pipeline.stage import Result
from wm.pipeline.train_dreamer import RECIPE, dreamer_run, open_datasets, replay_path, require_used
from wm.pipeline.train_dreamer import train_dreamer as train
from wm.settings import DreamerSettings
from wm.training.device import pick_device

__all__ = ["RECIPE", "plan", "replay_path", "require_used", "train_dreamer"]


def plan(session: Session, settings: DreamerSettings) -> Plan:
    """The plan of `train_dreamer`, with the measured time of a few updates."""
    require_used(session, settings, session.typed)
    run = dreamer_run(session, settings, open_datasets(session))
    return plan_stage("train-dreamer", run, partial(_estimate, session, settings, run))


def train_dreamer(session: Session, settings: DreamerSettings) -> Result:
    """Train a Dreamer, as the library does it."""
    require_used(session, settings, session.typed)
    return train(session, settings)


def _estimate(session: Session, settings: DreamerSettings, run: Run) -> Plan:
    _, space = playing_env(session.env, settings, session.data, session.runtime)
    device, pretrained = pick_device(session.device), bool(session.data)
    cost = dreamer_cost(session.runtime.clock, settings, space, pretrained, session.seed, device)
    what = f"{settings.steps} steps of {settings.num_envs} environments, {cost.updates:,.0f} updates"
    return Plan("train-dreamer", run.folder, what, cost.disk, cost.memory, cost.seconds, scratch=cost.scratch)
