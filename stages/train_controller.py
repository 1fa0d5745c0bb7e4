"""`wm train-controller`: V + M -> C, evolved in the real environment, in the dream, or in both, or trained by policy
gradient in one of them."""

from typing import Any

from stages.session import Session, stage_name
from stages.stage import Plan, Result, plan_stage, run_stage
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Builder, Run
from wm.evolution.controller_search import MEANS, evolve_controller
from wm.evolution.fitness import most_steps
from wm.evolution.transfer import load_transfer_source
from wm.models.controller import ControllerConfig, pick_head
from wm.policy_gradient.controller_training import train_by_gradient
from wm.policy_gradient.cost import training_seconds
from wm.policy_gradient.network import policy_config
from wm.policy_gradient.real_rollouts import require_instances
from wm.pretrained import (
    TrainedMdnRnn,
    TrainedVae,
    build_controller,
    load_pair,
)
from wm.report.returns_plot import draw_returns
from wm.rollouts.players import policy_spec
from wm.rollouts.speed import measure_env
from wm.rollouts.worker_process import playing_memory
from wm.settings import ControllerSettings

RECIPE = 10
_STOPPED = {
    "hours": "time limit reached",
    "steps": "step limit reached",
    "target": "target reached",
    "exploited": "C exploits the dream",
}


def _run(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> Run:
    inputs = {"vae": vae.artifact.fingerprint, "mdnrnn": mdnrnn.artifact.fingerprint, **vae.env.code.sources}
    if settings.init_from:
        inputs["init_from"] = load_transfer_source(settings.init_from).controller.artifact.fingerprint
    name = stage_name(session, "controller")
    return session.make_run(name, "controller", RECIPE, settings.result_settings(), inputs)


def _config(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> ControllerConfig:
    if settings.policy_gradient:
        if settings.in_ == "real":
            require_instances(vae.env)
        return policy_config(settings, mdnrnn.space, session.seed)
    head = pick_head(settings.head, mdnrnn.space, vae.env.spec().head)
    return ControllerConfig(head, settings.hidden, settings.memory_used, session.seed)


def describe(settings: ControllerSettings) -> str:
    """How long C is trained, for a plan."""
    if settings.policy_gradient:
        real = settings.in_ == "real"
        steps = f"{settings.step_limit:,} environment" if real else f"{settings.max_dream_steps:,} dream"
        return f"{steps} steps by policy gradient ({settings.in_})"
    return f"{settings.max_generations} generations of {settings.popsize} ({settings.in_})"


def plan(session: Session, settings: ControllerSettings) -> Plan:
    """What `train_controller` would do. Episodes differ in length, so the time is a range."""
    vae, mdnrnn = load_pair(session.workspace)
    run = _run(session, settings, vae, mdnrnn)

    def estimate() -> Plan:
        config = _config(session, settings, vae, mdnrnn)
        controller = build_controller(mdnrnn, config, vae.env)
        workers, clock = session.processes, session.runtime.clock
        memory = None if config.memory == "none" else mdnrnn.model
        speed = measure_env(vae.env, clock).with_models(vae.model, memory, clock)
        disk = (MEANS + 2) * controller.parameters * 4 + 200_000
        if settings.policy_gradient:
            seconds = training_seconds(clock, settings, controller, mdnrnn.model, speed, vae.env.action_repeat, workers)
        else:
            seconds = speed.duration(most_steps(settings, speed.longest), workers)
        return Plan("train-controller", run.folder, describe(settings), disk, playing_memory(workers), seconds)

    return plan_stage("train-controller", run, estimate)


def train_controller(session: Session, settings: ControllerSettings) -> Result:
    """Train C, validate it every so often in real episodes of their own, publish the best by validation."""
    workspace = session.workspace
    vae, mdnrnn = load_pair(workspace)
    run = _run(session, settings, vae, mdnrnn)
    if settings.in_ != "real" and (warning := mdnrnn.artifact.metrics.get("events", {}).get("warning")):
        session.runtime.log(f"warning: {warning}")

    def work(builder: Builder) -> dict[str, Any]:
        policy = policy_spec(vae, mdnrnn, _config(session, settings, vae, mdnrnn))
        train = train_by_gradient if settings.policy_gradient else evolve_controller
        history, metrics = train(session.runtime, workspace, settings, session.seed, mdnrnn, policy, builder)
        place = "dream" if settings.in_ == "dream" and not settings.policy_gradient else "real"
        durable.write_bytes(builder.folder / "returns.png", draw_returns(history, session.env, place))
        return metrics

    return run_stage(session, "train-controller", run, (2_000_000, "training C"), _summary, work, vae.env)


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    dream = f" (in the dream {metrics['dream_return']:.1f})" if "dream_return" in metrics else ""
    if "dream_steps" in metrics:
        dream = f" (learned in {metrics['dream_steps']:,} dream steps)"
    stopped = f"; {_STOPPED[metrics['ended']]}" if metrics["ended"] in _STOPPED else ""
    by_gradient = artifact.settings["algo"] == "ppo"
    acts = f", acting {'by samples' if metrics.get('sampled') else 'likeliest'}" if by_gradient else ""
    best = f"{'policy at iteration' if by_gradient else 'mean at generation'} {metrics['best_generation']}"
    if metrics.get("earlier_is_best"):
        best = "policy still an earlier run's, none"
    return (
        f"best {best} of {metrics['generations']}{acts}: validation return "
        f"{metrics['validation_return']:.1f} over {metrics['validation_episodes']} episodes{dream}; "
        f"{metrics['env_steps']:,} env steps, {metrics['parameters']} parameters ({metrics['head']}){stopped}"
    )
