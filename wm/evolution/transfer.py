"""`wm train-controller --from`: a controller goes on with another M, or with another V and M.

C is linear in [z, h], and an M that was trained again says the same in another h, a V in another z. So the new weights
are those whose outputs are nearest, over real episodes, to what the old ones say with the old V and M (ridge
regression). With the same V, one that makes no use of h stays as it is, also where it is given another h, or none.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents
from wm.errors import RecipeMismatch
from wm.models.controller import Controller
from wm.models.mdnrnn.network import MdnRnn
from wm.models.vae.inference import InferenceEncoder
from wm.pretrained import (
    ControllerConfig,
    TrainedController,
    TrainedMdnRnn,
    TrainedVae,
    controller_memory,
    load_controller,
    load_mdnrnn,
    load_vae,
)

EPISODES, LONGEST = 64, 500  # played through both Ms
AT_ONCE = 64  # frames
RIDGE = 1e-3


@dataclass(frozen=True)
class TransferSource:
    """The controller to go on from, and the V and M it was evolved on."""

    controller: TrainedController
    mdnrnn: TrainedMdnRnn
    vae: TrainedVae

    def same_vae(self, mdnrnn: TrainedMdnRnn) -> bool:
        """Whether this M sees with the same V."""
        same: bool = self.controller.artifact.inputs["vae"] == mdnrnn.artifact.inputs["vae"]
        return same


def load_transfer_source(run: str) -> TransferSource:
    """The controller of a run. Raises MissingInput if there is none."""
    folder = Path(run)
    controller = load_controller(folder / "controller", f"wm train-controller --run {run}")
    mdnrnn = load_mdnrnn(folder / "mdnrnn", f"wm train-mdnrnn --run {run}")
    return TransferSource(controller, mdnrnn, load_vae(folder / "vae", f"wm train-vae --run {run}"))


def transferred_weights(
    previous: TransferSource,
    mdnrnn: TrainedMdnRnn,
    form: ControllerConfig,
    controller: Controller,
    latents: Latents,
    frames: FrameReader | None = None,
) -> NDArray[np.float32]:
    """The previous controller's parameters, for a `controller` of this form on this M. If V is another one, `frames`
    are those of the `latents`.

    Raises RecipeMismatch if C has another head or other hidden units, or cannot be carried over to another V or M.
    """
    there, old = previous.controller, np.asarray(previous.controller.parameters, np.float32)
    if replace(there.model, inputs=controller.inputs) != controller:
        shapes = [f"{one.head}, {one.hidden} hidden units" for one in (there.model, controller)]
        raise RecipeMismatch(
            f"{there.artifact.folder} has another form ({shapes[0]}) than is asked for ({shapes[1]}); give the same "
            "settings, or leave --from out."
        )
    same_vae = previous.same_vae(mdnrnn)
    same_m = previous.mdnrnn.artifact.fingerprint == mdnrnn.artifact.fingerprint
    if same_vae and there.config.memory_identity == form.memory_identity and (same_m or form.memory == "none"):
        return old
    if controller.hidden:
        raise RecipeMismatch(
            "--from takes a controller with hidden units only to the same V and memory; leave --from out."
        )
    size = controller.outputs * there.model.inputs
    weights, biases = old[:size].reshape(controller.outputs, -1), old[size:]
    latent = mdnrnn.model.latent
    if same_vae and not weights_on_memory(old, there.model, latent).any():
        kept = np.pad(weights[:, :latent], ((0, 0), (0, controller.inputs - latent)))
        return np.concatenate([kept.ravel(), biases])
    if not same_vae and frames is None:
        raise RecipeMismatch(
            f"{there.artifact.folder} was evolved on another V, and no --data is the newest that this one's M learned "
            "from, whose frames would be shown to both; give it with --data, or leave --from out."
        )
    eye = InferenceEncoder(previous.vae.model, AT_ONCE)
    memories = [controller_memory(previous.mdnrnn, there.config), controller_memory(mdnrnn, form)]
    before, after = [], []
    for episode in np.unique(np.linspace(0, len(latents.ends) - 1, EPISODES).astype(np.int64)):
        first, end = int(latents.starts[episode]), int(latents.ends[episode]) - 1
        rows = slice(first, min(end, first + LONGEST))
        z, actions = latents.means[rows], torch.from_numpy(latents.space.encode(latents.actions[rows]))
        seen = z if same_vae or frames is None else _seen(eye, frames.read(rows.start, rows.stop))
        before.append(controller_inputs(memories[0], seen, actions))
        after.append(controller_inputs(memories[1], z, actions))
    return _nearest(np.concatenate(after), np.concatenate(before) @ weights.T.astype(np.float64) + biases)


def _seen(eye: InferenceEncoder, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.concatenate([eye.see(part).numpy() for part in torch.from_numpy(frames).split(AT_ONCE)])


def weights_on_memory(parameters: NDArray[np.float32], controller: Controller, latent: int) -> NDArray[np.float32]:
    """What a linear C's parameters make of h, (outputs, H)."""
    size = controller.outputs * controller.inputs
    return parameters[:size].reshape(controller.outputs, controller.inputs)[:, latent:]


@torch.inference_mode()
def controller_inputs(memory: MdnRnn | None, z: NDArray[np.float32], actions: torch.Tensor) -> NDArray[np.float64]:
    """[z, h] (T, Z + H) as C sees them along an episode, z (T, Z) and encoded actions (T, A): h before the step; z
    alone without a memory."""
    if memory is None:
        return z.astype(np.float64)
    hidden = memory.lstm(torch.cat([torch.from_numpy(z), actions], -1)[None])[0][0].numpy()
    return np.concatenate([z, np.pad(hidden[:-1], ((1, 0), (0, 0)))], -1).astype(np.float64)


def _nearest(features: NDArray[np.float64], said: NDArray[np.float64]) -> NDArray[np.float32]:
    """Flat parameters of the linear policy on features (N, F) that is nearest to outputs (N, O)."""
    inputs = np.concatenate([features, np.ones((len(features), 1))], 1)
    spread = np.append(features.var(axis=0).mean() * np.ones(features.shape[1]), 0.0)
    weights = np.linalg.solve(inputs.T @ inputs + RIDGE * len(inputs) * np.diag(spread), inputs.T @ said)
    return np.concatenate([weights[:-1].T.ravel(), weights[-1]]).astype(np.float32)
