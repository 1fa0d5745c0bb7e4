"""V + M -> C: evolved in the real environment, in the dream, or in both, or by policy gradient in one of them."""

from typing import Any

from wm.actions import ActionSpace
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Builder, Run
from wm.envs.registry import EnvConfig
from wm.evolution.controller_search import evolve_controller
from wm.evolution.transfer import load_transfer_source
from wm.models.controller import ControllerConfig, pick_head
from wm.pipeline.session import Session, stage_name
from wm.pipeline.stage import Result, run_stage
from wm.policy_gradient.controller_training import train_by_gradient
from wm.policy_gradient.network import policy_config
from wm.policy_gradient.real_rollouts import require_instances
from wm.pretrained import TrainedMdnRnn, TrainedVae
from wm.report.returns_plot import draw_returns
from wm.rollouts.players import policy_spec
from wm.run_models import load_pair
from wm.settings import ControllerSettings

RECIPE = 13
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


def train_controller(session: Session, settings: ControllerSettings) -> Result:
    """Train C, validate it every so often in real episodes of their own, publish the best by validation."""
    workspace = session.workspace
    vae, mdnrnn = load_pair(workspace)
    run = controller_run(session, settings, vae, mdnrnn)
    if settings.in_ != "real" and (warning := mdnrnn.artifact.metrics.get("events", {}).get("warning")):
        session.runtime.log(f"warning: {warning}")

    def work(builder: Builder) -> dict[str, Any]:
        policy = policy_spec(vae, mdnrnn, controller_config(settings, vae.env, mdnrnn.space, session.seed))
        train = train_by_gradient if settings.policy_gradient else evolve_controller
        history, metrics = train(session.runtime, workspace, settings, session.seed, mdnrnn, policy, builder)
        durable.write_bytes(builder.folder / "returns.png", draw_returns(history, session.env))
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
        f"{metrics['env_steps']:,} env steps, {metrics['parameters']:,} parameters ({metrics['head']}){stopped}"
    )
