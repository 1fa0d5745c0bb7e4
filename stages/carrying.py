"""`wm train-controller --from`: a controller goes on with another M.

C is linear in [z, h], and an M that was trained again says the same in another h. So the new weights are those whose
outputs are nearest, over real episodes, to what the old ones say with the old M (ridge regression). One that makes no
use of h stays as it is.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from stages.trained import TrainedController, TrainedMdnRnn, load_controller, load_mdnrnn, memory_of
from wm.episodes.latents import Latents
from wm.episodes.windows import Windows
from wm.errors import RecipeMismatch
from wm.models.controller import Controller
from wm.models.mdnrnn import MdnRnn

EPISODES, LONGEST = 64, 500  # played through both Ms
RIDGE = 1e-3


@dataclass(frozen=True)
class Previous:
    """The controller to go on from, and the M it was evolved on."""

    controller: TrainedController
    mdnrnn: TrainedMdnRnn


def load_previous(run: str) -> Previous:
    """The controller of a run. Raises MissingInput if there is none."""
    folder, again = Path(run), f"wm train-controller --run {run}"
    return Previous(load_controller(folder / "controller", again), load_mdnrnn(folder / "mdnrnn", again))


def carried_over(
    previous: Previous, mdnrnn: TrainedMdnRnn, controller: Controller, latents: Latents
) -> NDArray[np.float32]:
    """The previous controller's parameters, for this M. Raises RecipeMismatch if C has another form, or V changed."""
    there, old = previous.controller, np.asarray(previous.controller.parameters, np.float32)
    if there.model != controller:
        shapes = [f"{one.head}, {one.inputs} inputs, {one.hidden} hidden units" for one in (there.model, controller)]
        raise RecipeMismatch(
            f"{there.artifact.folder} has another form ({shapes[0]}) than is asked for ({shapes[1]}); give the same "
            "settings, or leave --from out."
        )
    if there.artifact.inputs["vae"] != mdnrnn.artifact.inputs["vae"]:
        raise RecipeMismatch(
            f"{there.artifact.folder} was evolved on another V; give a run of the same V, or leave --from out."
        )
    same = previous.mdnrnn.artifact.fingerprint == mdnrnn.artifact.fingerprint
    if same or there.form.memory == "none":
        return old
    if controller.hidden:
        raise RecipeMismatch("--from takes a controller with hidden units only to the same M; leave --from out.")
    size = controller.outputs * controller.inputs
    if not weights_on_memory(old, controller, mdnrnn.model.latent).any():
        return old
    form = there.form
    memories = [memory_of(each, form) for each in (previous.mdnrnn, mdnrnn)]
    windows = Windows(latents, np.ones(len(latents.ends), bool), LONGEST, EPISODES, 0)
    chosen = np.unique(np.linspace(0, len(latents.ends) - 1, EPISODES).astype(np.int64))
    batch = windows.cut(np.stack([chosen, np.zeros_like(chosen)], axis=1))
    seen = batch.mask.astype(bool)
    z, actions = torch.from_numpy(batch.means[:, :-1]), torch.from_numpy(batch.actions)
    features = [given_to_c(memory, z, actions)[seen] for memory in memories if memory is not None]
    said = features[0] @ old[:size].reshape(controller.outputs, -1).T.astype(np.float64) + old[size:]
    return _nearest(features[1], said)


def weights_on_memory(parameters: NDArray[np.float32], controller: Controller, latent: int) -> NDArray[np.float32]:
    """What a linear C's parameters make of h, (outputs, H)."""
    size = controller.outputs * controller.inputs
    return parameters[:size].reshape(controller.outputs, controller.inputs)[:, latent:]


@torch.inference_mode()
def given_to_c(memory: MdnRnn, z: torch.Tensor, actions: torch.Tensor) -> NDArray[np.float64]:
    """[z, h] (B, L, Z + H) as C sees them: h before the step."""
    hidden = memory.lstm(torch.cat([z, actions], -1))[0].numpy()
    return np.concatenate([z.numpy(), np.pad(hidden[:, :-1], ((0, 0), (1, 0), (0, 0)))], -1).astype(np.float64)


def _nearest(features: NDArray[np.float64], said: NDArray[np.float64]) -> NDArray[np.float32]:
    """Flat parameters of the linear policy on features (N, F) that is nearest to outputs (N, O)."""
    inputs = np.concatenate([features, np.ones((len(features), 1))], 1)
    spread = np.append(features.var(axis=0).mean() * np.ones(features.shape[1]), 0.0)
    weights = np.linalg.solve(inputs.T @ inputs + RIDGE * len(inputs) * np.diag(spread), inputs.T @ said)
    return np.concatenate([weights[:-1].T.ravel(), weights[-1]]).astype(np.float32)
