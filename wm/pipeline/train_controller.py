"""V + M -> C: evolved in the real environment, in the dream, or in both, or by policy gradient in one of them."""

from typing import Any

from wm.actions import ActionSpace
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Builder, Run
from wm.artifacts.workspace import Workspace
from wm.dreams.initial_states import load_latent_parts
from wm.envs.registry import EnvConfig
from wm.episodes.latents import join
from wm.episodes.lives import cut_at_lost_lives
from wm.evaluation.event_rates import STEPS, judge_events
from wm.evolution import cost as cost_of_search
from wm.evolution.controller_search import evolve_controller
from wm.evolution.transfer import load_transfer_source
from wm.models.controller import Controller, ControllerConfig, pick_head
from wm.pipeline.session import Session, stage_name
from wm.pipeline.stage import Result, run_stage
from wm.policy_gradient import cost as cost_of_gradient
from wm.policy_gradient.controller_training import train_by_gradient
from wm.policy_gradient.network import policy_config
from wm.policy_gradient.real_rollouts import require_instances
from wm.pretrained import TrainedMdnRnn, TrainedVae, build_controller
from wm.report.returns_plot import draw_returns
from wm.rollouts.players import policy_spec
from wm.run_models import load_pair
from wm.settings import ControllerSettings
from wm.training.cost import RECORD_BYTES

# Raised by each change after which the same settings give another C; older ones stay in the archive.
RECIPE = 14
_STOPPED = {
    "hours": "time limit reached",
    "steps": "step limit reached",
    "target": "target reached",
    "exploited": "C exploits the dream",
}


def controller_run(session: Session, settings: ControllerSettings, vae: TrainedVae, mdnrnn: TrainedMdnRnn) -> Run:
    """The place of C in a run, for this V and M."""
    inputs = {"vae": vae.artifact.fingerprint, "mdnrnn": mdnrnn.artifact.fingerprint, **vae.env.code.sources}
    if settings.init_from:
        inputs["init_from"] = load_transfer_source(settings.init_from, session.env).controller.artifact.fingerprint
    name = stage_name(session, "controller", settings.init_from)
    return session.make_run(name, "controller", RECIPE, settings.result_settings(), inputs)


def controller_config(settings: ControllerSettings, env: EnvConfig, space: ActionSpace, seed: int) -> ControllerConfig:
    """What C is: its head, its layers and its memory."""
    if settings.policy_gradient:
        if settings.in_ == "real":
            require_instances(env)
        return policy_config(settings, space, seed)
    head = pick_head(settings.head, space, env.spec().head)
    return ControllerConfig(head, settings.hidden, settings.memory_used, seed)


def disk_bytes(settings: ControllerSettings, controller: Controller) -> tuple[int, int]:
    """Bytes of disk that a trained C takes, and those that its training needs meanwhile."""
    if settings.policy_gradient:
        kept, scratch = cost_of_gradient.disk_bytes(controller)
    else:
        whiteners = int(settings.whitened_from_start) + len(settings.whitened_later)
        kept, scratch = cost_of_search.disk_bytes(controller, whiteners), 0
    return kept + RECORD_BYTES, scratch


def train_controller(session: Session, settings: ControllerSettings) -> Result:
    """Train C, validate it every so often in real episodes of their own, publish the best by validation."""
    workspace = session.workspace
    vae, mdnrnn = load_pair(workspace)
    run = controller_run(session, settings, vae, mdnrnn)

    def work(builder: Builder) -> dict[str, Any]:
        if settings.in_ != "real" and (warning := _event_warning(workspace, settings, mdnrnn)):
            session.runtime.log(f"warning: {warning}")
        policy = policy_spec(vae, mdnrnn, controller_config(settings, vae.env, mdnrnn.space, session.seed))
        train = train_by_gradient if settings.policy_gradient else evolve_controller
        history, metrics = train(session.runtime, workspace, settings, session.seed, mdnrnn, policy, builder)
        durable.write_bytes(builder.folder / "returns.png", draw_returns(history, session.env))
        return metrics

    controller = build_controller(mdnrnn, controller_config(settings, vae.env, mdnrnn.space, session.seed), vae.env)
    need = sum(disk_bytes(settings, controller)), "training C"
    return run_stage(session, "train-controller", run, need, _summary, work, vae.env)


def _event_warning(workspace: Workspace, settings: ControllerSettings, mdnrnn: TrainedMdnRnn) -> str:
    """What is wrong with the events of dreams of C's temperature, as long as C's up to 50 steps; empty if nothing is. A
    temperature that is still to be chosen counts as 1."""
    temperature = 1.0 if settings.temperature == "auto" else float(settings.temperature)
    # No further than C's own dreams: what happens later cannot mislead it.
    steps = min(settings.steps_per_place, STEPS) if settings.policy_gradient else STEPS
    metrics = mdnrnn.artifact.metrics
    if (temperature, steps) == (1.0, STEPS) and "events" in metrics:
        return str(metrics["events"]["warning"])
    parts = load_latent_parts(workspace, mdnrnn)
    latents = join(cut_at_lost_lives(mdnrnn.artifact.settings["network"], parts))
    held_out = mdnrnn.held_out(latents)
    episodes = held_out if held_out.any() else ~held_out
    return str(judge_events(mdnrnn.model, latents, episodes, temperature, steps)["warning"])


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
        f"{metrics['env_steps']:,} env steps, {metrics['parameters']:,} parameters ({metrics['head']}){stopped}"
    )
