"""`wm train-controller`: V + M -> C, evolved in the real environment, in the dream, or in both, or trained by policy
gradient in one of them."""

from dataclasses import replace
from typing import Any

from stages.session import Session, stage_name
from stages.stage import Plan, Result, plan_stage, run_stage
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Builder, Run
from wm.dreams.initial_states import initial_states_anywhere, load_latent_parts
from wm.episodes.latents import join
from wm.evolution.controller_search import evolve_controller
from wm.evolution.fitness import most_steps
from wm.evolution.transfer import initial_parameters, load_transfer_source
from wm.models.controller import Controller, ControllerConfig, pick_head
from wm.policy_gradient.cost import training_seconds
from wm.policy_gradient.earlier import earlier_policy
from wm.policy_gradient.network import inputs_seen, policy_config
from wm.policy_gradient.real_rollouts import require_instances
from wm.policy_gradient.training import train_policy
from wm.pretrained import (
    TrainedMdnRnn,
    TrainedVae,
    build_controller,
    controller_memory,
    load_pair,
    save_controller,
)
from wm.report.returns_plot import draw_returns
from wm.rollouts.players import PolicySpec, policy_spec
from wm.rollouts.speed import measure_env
from wm.rollouts.worker_process import playing_memory
from wm.settings import ControllerSettings

RECIPE = 8
MEANS = 64  # of the search's means, equally spaced, that are saved for `wm dream`
INITIAL_STATES = 4096  # real states in which the dreams of a policy gradient start
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
    """Evolve C; validate the distribution's mean every few generations; publish the best mean by validation."""
    workspace = session.workspace
    vae, mdnrnn = load_pair(workspace)
    run = _run(session, settings, vae, mdnrnn)
    if settings.in_ != "real" and (warning := mdnrnn.artifact.metrics.get("events", {}).get("warning")):
        session.runtime.log(f"warning: {warning}")

    def work(builder: Builder) -> dict[str, Any]:
        policy = policy_spec(vae, mdnrnn, _config(session, settings, vae, mdnrnn))
        controller = build_controller(mdnrnn, policy.controller, policy.env)
        if settings.policy_gradient:
            return _train(session, settings, mdnrnn, policy, controller, builder)
        start, earlier_cost = initial_parameters(settings, workspace, mdnrnn, policy.controller, controller)
        evolution, figures = evolve_controller(
            session.runtime, workspace, settings, session.seed, mdnrnn, policy, start, builder
        )
        history = evolution.history
        assert history.best is not None
        generations, means = history.spaced_means(MEANS)
        save_controller(builder.folder, policy.controller, controller, history.best, means)
        durable.write_bytes(
            builder.folder / "returns.png",
            draw_returns(history, session.env, "dream" if settings.in_ == "dream" else "real"),
        )
        return {
            **figures,
            **earlier_cost,
            "parameters": controller.parameters,
            "head": controller.head,
            "means": generations,
            "trusted": evolution.trusts_dream,
            "ended": evolution.stop_reason(),
        }

    return run_stage(session, "train-controller", run, (2_000_000, "evolving C"), _summary, work, vae.env)


def _train(
    session: Session,
    settings: ControllerSettings,
    mdnrnn: TrainedMdnRnn,
    policy: PolicySpec,
    controller: Controller,
    builder: Builder,
) -> dict[str, Any]:
    """Train by policy gradient, save, and return the metrics."""
    label = f"train-controller {session.env}"
    parts, memory = load_latent_parts(session.workspace, mdnrnn), controller_memory(mdnrnn, policy.controller)
    seen, initial = inputs_seen(controller, memory, join(parts)), None
    if settings.in_ == "dream":
        later_weight = mdnrnn.artifact.settings.get("later_weight", 1.0)
        initial = initial_states_anywhere(parts, mdnrnn, session.seed, INITIAL_STATES, later_weight)
    earlier, cost = None, {"env_steps_before": 0, "seconds_before": 0.0}
    if settings.init_from:
        source = load_transfer_source(settings.init_from)
        earlier = earlier_policy(source, mdnrnn, controller, session.seed, settings.validation_episodes)
        cost = source.cost(mdnrnn)
    trained = train_policy(
        session.runtime, settings, session.seed, mdnrnn, policy, initial, seen, earlier, builder.folder, label
    )
    config = replace(policy.controller, sampled=trained.sampled)
    save_controller(
        builder.folder, config, controller, trained.parameters, trained.snapshots, trained.networks, trained.latest
    )
    durable.write_bytes(builder.folder / "returns.png", draw_returns(trained.history, session.env, "real"))
    return {
        **trained.figures,
        **cost,
        "parameters": controller.parameters,
        "head": controller.head,
        "sampled": trained.sampled,
        "means": trained.iterations,
        "trusted": settings.in_ == "dream" and trained.ended != "exploited",
        "ended": trained.ended,
    }


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
