"""The training of C by policy gradient from its inputs to its saved weights and figures."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from wm.artifacts.runs import Builder
from wm.artifacts.workspace import Workspace
from wm.dreams.env import InitialStates
from wm.dreams.initial_states import initial_states_anywhere, load_latent_parts
from wm.episodes.latents import join
from wm.episodes.lives import cut_at_lost_lives
from wm.evolution.history import History
from wm.evolution.transfer import load_transfer_source
from wm.models.controller import Controller
from wm.policy_gradient.earlier import Earlier, earlier_policy
from wm.policy_gradient.imitation import imitated_policy
from wm.policy_gradient.network import inputs_seen
from wm.policy_gradient.training import train_policy
from wm.pretrained import TrainedMdnRnn, build_controller, controller_memory, save_controller
from wm.rollouts.players import PolicySpec
from wm.runtime import Runtime
from wm.settings import ControllerSettings
from wm.training.cpu_threads import one_thread

# Several times the 512 to 1,536 dreams of an iteration, so that few of them begin alike.
INITIAL_STATES = 4096  # real states in which dreams start


def _recorded(
    workspace: Workspace,
    seed: int,
    mdnrnn: TrainedMdnRnn,
    policy: PolicySpec,
    controller: Controller,
    *,
    in_dreams: bool,
) -> tuple[Tensor, InitialStates | None]:
    """C's inputs (N, F) in recorded episodes, and for a training in dreams their initial states. The latents themselves
    do not stay in memory."""
    parts, memory = load_latent_parts(workspace, mdnrnn), controller_memory(mdnrnn, policy.controller)
    inputs = inputs_seen(controller, memory, join(parts))
    if not in_dreams:
        return inputs, None
    settings_of_m = mdnrnn.artifact.settings
    lives, later_weight = cut_at_lost_lives(settings_of_m["network"], parts), settings_of_m.get("later_weight", 1.0)
    return inputs, initial_states_anywhere(lives, mdnrnn, seed, INITIAL_STATES, later_weight)


def train_by_gradient(
    runtime: Runtime,
    workspace: Workspace,
    settings: ControllerSettings,
    seed: int,
    mdnrnn: TrainedMdnRnn,
    policy: PolicySpec,
    builder: Builder,
) -> tuple[History, dict[str, Any]]:
    """Train C, save it in the builder's folder, and return the history and the metrics. After a kill it resumes."""
    began = runtime.clock()
    controller = build_controller(mdnrnn, policy.controller, policy.env)
    inputs, initial = _recorded(workspace, seed, mdnrnn, policy, controller, in_dreams=settings.in_ == "dream")
    earlier, cost = None, {"env_steps_before": 0, "seconds_before": 0.0}
    if settings.init_from:
        source = load_transfer_source(settings.init_from, workspace.env)
        if settings.imitate:
            with one_thread():  # the same weights on any number of cores
                network = imitated_policy(source, workspace, mdnrnn, policy.controller, controller, seed)
            earlier = Earlier(network, None)
        else:
            earlier = earlier_policy(source, mdnrnn, policy.controller, controller, seed, settings.validation_episodes)
        cost = source.cost(mdnrnn)
    folder, label = builder.folder, f"train-controller {workspace.env}"
    trained = train_policy(runtime, settings, seed, mdnrnn, policy, initial, inputs, earlier, folder, label, began)
    config = replace(policy.controller, sampled=trained.sampled)
    save_controller(folder, config, controller, trained.parameters, trained.snapshots, trained.networks, trained.latest)
    return trained.history, {
        **trained.figures,
        **cost,
        "parameters": controller.parameters,
        "head": controller.head,
        "sampled": trained.sampled,
        "means": trained.iterations,
        "trusted": settings.in_ == "dream" and trained.ended != "exploited",
        "ended": trained.ended,
    }
