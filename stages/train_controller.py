"""`wm train-controller`: V + M -> C, evolved in the real environment, in the dream, or in both."""

from typing import Any

from stages.session import Session, stage_name
from stages.stage import Plan, Result, plan_stage, run_stage
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Builder, Run
from wm.evolution.controller_search import evolve_controller
from wm.evolution.fitness import most_steps
from wm.evolution.transfer import initial_parameters, load_transfer_source
from wm.models.controller import ControllerConfig, pick_head
from wm.pretrained import (
    TrainedMdnRnn,
    TrainedVae,
    build_controller,
    load_pair,
    save_controller,
)
from wm.report.returns_plot import draw_returns
from wm.rollouts.players import policy_spec
from wm.rollouts.speed import measure_env
from wm.rollouts.worker_process import playing_memory
from wm.settings import ControllerSettings

RECIPE = 7
MEANS = 64  # of the search's means, equally spaced, that are saved for `wm dream`
_STOPPED = {"hours": "time limit reached", "steps": "step limit reached", "target": "target reached"}


def _run(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> Run:
    inputs = {"vae": vae.artifact.fingerprint, "mdnrnn": mdnrnn.artifact.fingerprint}
    if settings.init_from:
        inputs["init_from"] = load_transfer_source(settings.init_from).controller.artifact.fingerprint
    name = stage_name(session, "controller")
    return session.make_run(name, "controller", RECIPE, settings.result_settings(), inputs)


def _config(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> ControllerConfig:
    head = pick_head(settings.head, mdnrnn.space, vae.env.spec().head)
    return ControllerConfig(head, settings.hidden, settings.memory, session.seed)


def plan(session: Session, settings: ControllerSettings) -> Plan:
    """What `train_controller` would do. Episodes differ in length, so the time is a range."""
    vae, mdnrnn = load_pair(session.workspace)
    run = _run(session, settings, vae, mdnrnn)

    def estimate() -> Plan:
        controller = build_controller(mdnrnn, _config(session, settings, vae, mdnrnn), vae.env)
        workers, clock = session.processes, session.runtime.clock
        speed = measure_env(vae.env, clock).with_models(vae.model, mdnrnn.model, clock)
        what = f"{settings.max_generations} generations of {settings.popsize} ({settings.in_})"
        disk = (MEANS + 2) * controller.parameters * 4 + 200_000
        seconds = speed.duration(most_steps(settings, speed.longest), workers)
        return Plan("train-controller", run.folder, what, disk, playing_memory(workers), seconds)

    return plan_stage("train-controller", run, estimate)


def train_controller(session: Session, settings: ControllerSettings) -> Result:
    """Evolve C; validate the distribution's mean every few generations; publish the best mean by validation."""
    workspace = session.workspace
    vae, mdnrnn = load_pair(workspace)
    run = _run(session, settings, vae, mdnrnn)

    def work(builder: Builder) -> dict[str, Any]:
        policy = policy_spec(vae, mdnrnn, _config(session, settings, vae, mdnrnn))
        controller = build_controller(mdnrnn, policy.controller, policy.env)
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


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    dream = f" (in the dream {metrics['dream_return']:.1f})" if "dream_return" in metrics else ""
    stopped = f"; {_STOPPED[metrics['ended']]}" if metrics["ended"] in _STOPPED else ""
    return (
        f"best mean at generation {metrics['best_generation']} of {metrics['generations']}: validation return "
        f"{metrics['validation_return']:.1f} over {metrics['validation_episodes']} episodes{dream}; "
        f"{metrics['env_steps']:,} env steps, {metrics['parameters']} parameters ({metrics['head']}){stopped}"
    )
