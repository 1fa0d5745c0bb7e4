"""`wm train-controller --init-from`: a controller's parameters for another M on the same V, or for another memory.

C is linear in [z, h], and an M that was trained again encodes the same history in another h. So the new parameters are
those whose outputs are nearest, over real episodes, to the outputs of the old ones with the old M (ridge regression). A
controller whose weights on h are zero keeps its weights on z. With `imitate` the old outputs may be of another V.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from wm.artifacts.workspace import Workspace
from wm.dreams.initial_states import load_latents, load_shared_latents
from wm.episodes.latents import Latents
from wm.errors import RecipeMismatch
from wm.models.controller import Controller, ControllerConfig, controller_inputs
from wm.models.mdnrnn.predictor import Predictor
from wm.pretrained import (
    TrainedController,
    TrainedMdnRnn,
    controller_memory,
    load_controller,
    load_mdnrnn,
    load_vae,
)
from wm.stats import ridge_regression

EPISODES, MAX_STEPS = 64, 500  # of the latents, that are played through both Ms


@dataclass(frozen=True)
class TransferSource:
    """A controller, and the M it was evolved on, in their run."""

    workspace: Workspace
    controller: TrainedController
    mdnrnn: TrainedMdnRnn

    def cost(self, mdnrnn: TrainedMdnRnn) -> dict[str, float]:
        """Environment steps of its search and those before, and their seconds with those of its M and V where they are
        others than `mdnrnn` and its V."""
        search = self.controller.artifact.metrics
        seconds = search["seconds"] + search.get("seconds_before", 0.0)
        if self.mdnrnn.artifact.fingerprint != mdnrnn.artifact.fingerprint:
            seconds += self.mdnrnn.artifact.wall_seconds
        if self.mdnrnn.artifact.inputs["vae"] != mdnrnn.artifact.inputs["vae"]:
            vae = load_vae(self.workspace.run / "vae", self.workspace.command("train-vae"))
            seconds += vae.artifact.wall_seconds + self.mdnrnn.artifact.metrics.get("encoding_seconds", 0.0)
        steps = search["env_steps"] + search.get("env_steps_before", 0)
        return {"env_steps_before": steps, "seconds_before": seconds}

    def memories_and_latents(
        self, workspace: Workspace, mdnrnn: TrainedMdnRnn, config: ControllerConfig
    ) -> list[tuple[Predictor | None, Latents]]:
        """What a C sees of the same episodes, row by row: the memory and the latents of the source, and those of a
        controller of this config on this M. Raises what `load_shared_latents` raises."""
        latents = load_shared_latents((self.workspace, workspace), (self.mdnrnn, mdnrnn))
        memories = controller_memory(self.mdnrnn, self.controller.config), controller_memory(mdnrnn, config)
        return list(zip(memories, latents, strict=True))


def load_transfer_source(run: str, env: str) -> TransferSource:
    """The controller of a run of `env` and its M. Raises MissingInput if there is none."""
    workspace = Workspace(env, Path(run), ())
    controller = load_controller(workspace.run / "controller", workspace.command("train-controller"))
    mdnrnn = load_mdnrnn(workspace.run / "mdnrnn", workspace.command("train-mdnrnn"))
    return TransferSource(workspace, controller, mdnrnn)


def initial_parameters(
    run: str | None,
    workspace: Workspace,
    mdnrnn: TrainedMdnRnn,
    config: ControllerConfig,
    controller: Controller,
    *,
    imitate: bool,
) -> tuple[NDArray[np.float32], dict[str, float]]:
    """The parameters the search starts from, and the cost of earlier searches and their Ms: those of the controller of
    a `run`, which may have another V if its policy is imitated, and zeros at no cost without a run."""
    if not run:
        return np.zeros(controller.parameters, np.float32), {"env_steps_before": 0, "seconds_before": 0.0}
    source = load_transfer_source(run, workspace.env)
    if imitate:
        return _imitating(source, workspace, mdnrnn, config, controller), source.cost(mdnrnn)
    start = transferred_weights(source, mdnrnn, config, controller, load_latents(workspace, mdnrnn))
    return start, source.cost(mdnrnn)


def _imitating(
    source: TransferSource,
    workspace: Workspace,
    mdnrnn: TrainedMdnRnn,
    config: ControllerConfig,
    controller: Controller,
) -> NDArray[np.float32]:
    """The parameters nearest to the source's policy on another V. Raises RecipeMismatch for hidden units and another
    head."""
    old = source.controller
    if old.model.hidden or old.model.layers or controller.hidden or old.model.outputs != controller.outputs:
        raise RecipeMismatch(
            f"--set imitate=true takes a linear policy with this head for --algo cma, which {old.artifact.folder} is "
            "not; leave it out."
        )
    both = source.memories_and_latents(workspace, mdnrnn, config)
    old_inputs, new_inputs = (_inputs_of(memory, latents) for memory, latents in both)
    return _nearest(new_inputs, _outputs(old.model, np.asarray(old.parameters, np.float32), old_inputs))


def _outputs(
    controller: Controller, parameters: NDArray[np.float32], inputs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of a linear C on inputs (N, F)."""
    size = controller.outputs * controller.inputs
    weights, biases = parameters[:size].reshape(controller.outputs, -1), parameters[size:]
    return inputs @ weights.T.astype(np.float64) + biases


def transferred_weights(
    source: TransferSource,
    mdnrnn: TrainedMdnRnn,
    config: ControllerConfig,
    controller: Controller,
    latents: Latents,
) -> NDArray[np.float32]:
    """The source's parameters, for a `controller` of this config on this M.

    Raises RecipeMismatch if V, the head or the hidden units differ, or if hidden units would get another memory.
    """
    old, parameters = source.controller, np.asarray(source.controller.parameters, np.float32)
    require_same_network(source, mdnrnn, controller)
    same_mdnrnn = source.mdnrnn.artifact.fingerprint == mdnrnn.artifact.fingerprint
    same_memory = old.config.memory_identity == config.memory_identity
    if same_memory and (same_mdnrnn or config.memory == "none"):
        return parameters
    if controller.hidden:
        raise RecipeMismatch(
            "--init-from transfers a controller with hidden units to the same memory only; leave --init-from out."
        )
    size, latent = controller.outputs * old.model.inputs, mdnrnn.model.latent
    if not weights_on_memory(parameters, old.model, latent).any():
        weights = parameters[:size].reshape(controller.outputs, -1)[:, :latent]
        padded = np.pad(weights, ((0, 0), (0, controller.inputs - latent)))
        return np.concatenate([padded.ravel(), parameters[size:]])
    memories = [controller_memory(source.mdnrnn, old.config), controller_memory(mdnrnn, config)]
    old_inputs, new_inputs = (_inputs_of(memory, latents) for memory in memories)
    return _nearest(new_inputs, _outputs(old.model, parameters, old_inputs))


def require_same_network(source: TransferSource, mdnrnn: TrainedMdnRnn, controller: Controller) -> None:
    """Raise RecipeMismatch if the source has another V than M, or other sizes and another head than the controller."""
    old = source.controller
    if old.artifact.inputs["vae"] != mdnrnn.artifact.inputs["vae"]:
        raise RecipeMismatch(
            f"{old.artifact.folder} has another V than {mdnrnn.artifact.folder}; add --set imitate=true to begin by "
            "imitating it, or leave --init-from out."
        )
    if replace(old.model, inputs=controller.inputs, sampled=controller.sampled) != controller:
        models = old.model, controller
        shapes = [f"{model.head}, hidden units: {list(model.layers) or model.hidden}" for model in models]
        raise RecipeMismatch(
            f"{old.artifact.folder} is another network ({shapes[0]}) than the settings describe ({shapes[1]}); use "
            "the same settings, or leave --init-from out."
        )


def spaced_episodes(latents: Latents) -> Iterator[slice]:
    """The rows of some equally spaced episodes, from the first step on."""
    for episode in np.unique(np.linspace(0, len(latents.ends) - 1, EPISODES).astype(np.int64)):
        first, end = int(latents.starts[episode]), int(latents.ends[episode]) - 1
        yield slice(first, min(end, first + MAX_STEPS))


def _inputs_of(memory: Predictor | None, latents: Latents) -> NDArray[np.float64]:
    """C's inputs over equally spaced episodes, one below the other."""
    inputs = []
    for rows in spaced_episodes(latents):
        actions = torch.from_numpy(latents.space.encode(latents.actions[rows]))
        inputs.append(controller_inputs(memory, latents.means[rows], actions))
    return np.concatenate(inputs)


def weights_on_memory(parameters: NDArray[np.float32], controller: Controller, latent: int) -> NDArray[np.float32]:
    """The weights on h of a linear C, (outputs, H)."""
    size = controller.outputs * controller.inputs
    return parameters[:size].reshape(controller.outputs, controller.inputs)[:, latent:]


def _nearest(inputs: NDArray[np.float64], outputs: NDArray[np.float64]) -> NDArray[np.float32]:
    """Flat parameters of the linear policy on inputs (N, F) that is nearest to outputs (N, O)."""
    columns = np.concatenate([inputs, np.ones((len(inputs), 1))], 1)
    scale = np.append(inputs.var(axis=0).mean() * np.ones(inputs.shape[1]), 0.0)
    weights = ridge_regression(columns, outputs, scale)
    return np.concatenate([weights[:-1].T.ravel(), weights[-1]]).astype(np.float32)
