"""`wm train-controller`: V + M -> C, evolved in the real environment, in the dream, or in both, or trained by policy
gradient in one of them."""

from stages.session import Session
from wm.evolution.cost import search_seconds
from wm.pipeline.plan import Plan, plan_stage
from wm.pipeline.train_controller import RECIPE, controller_config, controller_run, disk_bytes, train_controller
from wm.policy_gradient.cost import training_seconds
from wm.pretrained import build_controller
from wm.rollouts.speed import measure_env
from wm.rollouts.worker_process import playing_memory
from wm.run_models import load_pair
from wm.settings import ControllerSettings

__all__ = ["RECIPE", "check", "describe", "plan", "train_controller"]


def check(session: Session, settings: ControllerSettings) -> None:
    """Raise a WmError for settings that do not fit the inputs."""
    vae, mdnrnn = load_pair(session.workspace)
    build_controller(mdnrnn, controller_config(settings, vae.env, mdnrnn.space, session.seed), vae.env)


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
    run = controller_run(session, settings, vae, mdnrnn)

    def estimate() -> Plan:
        config = controller_config(settings, vae.env, mdnrnn.space, session.seed)
        controller = build_controller(mdnrnn, config, vae.env)
        workers, clock = session.processes, session.runtime.clock
        memory = None if config.memory == "none" else mdnrnn.model
        speed = measure_env(vae.env, clock).with_models(vae.model, memory, clock)
        if settings.policy_gradient:
            seconds = training_seconds(clock, settings, controller, mdnrnn.model, speed, vae.env.action_repeat, workers)
        else:
            seconds = search_seconds(clock, settings, controller, mdnrnn.model, speed, workers)
        disk, scratch = disk_bytes(settings, controller)
        return Plan(
            "train-controller",
            run.folder,
            describe(settings),
            disk,
            playing_memory(workers),
            seconds,
            scratch=scratch,
            fixed_work=settings.policy_gradient,
        )

    return plan_stage("train-controller", run, estimate)
