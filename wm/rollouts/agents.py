"""Agents that play several episodes at a time.

V + M + C: V encodes the frames of all slots, C acts on [mean z, h], M carries h on; without M, C acts on the mean z
alone. Dreamer: the posterior of its world model is carried on, its actor acts on it.
Both serve where the player has to.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.models.controller import SERVE_STEPS, Controller
from wm.models.dreamer.agent import Dreamer
from wm.models.mdnrnn.inference import MdnRnnCell
from wm.models.mdnrnn.network import MdnRnn
from wm.models.vae.inference import InferenceEncoder
from wm.models.vae.networks import Vae
from wm.rollouts.loop import EpisodeJob


class AutoFire:
    """Puts the ball into play with `action` after a reset and after a lost life, as the environment reports it."""

    def __init__(self, action: int, slots: int) -> None:
        self._action = action
        self._serving = [0] * slots
        self._lives: list[int | None] = [None] * slots

    def begin(self, slot: int) -> None:
        """A new episode."""
        self._serving[slot], self._lives[slot] = SERVE_STEPS, None

    def serve(self, actions: NDArray[Any], infos: Sequence[dict[str, Any]]) -> None:
        """Replace the actions of slots whose ball is not in play."""
        for slot, info in enumerate(infos):
            lives, before = info.get("lives"), self._lives[slot]
            if lives is not None and before is not None and lives < before:
                self._serving[slot] = SERVE_STEPS
            self._lives[slot] = lives
            if self._serving[slot] > 0:
                self._serving[slot] -= 1
                actions[slot] = self._action


def auto_fire_for(action: int | None, slots: int) -> AutoFire | None:
    """Who serves, where somebody has to."""
    return None if action is None else AutoFire(action, slots)


class VmcAgent:
    """Acts for `slots` episodes at a time, each with the parameters of its job's candidate.

    `vae` is None when observations are latents already (in a dream), `mdnrnn` when C does without memory.
    """

    def __init__(
        self,
        vae: Vae | None,
        mdnrnn: MdnRnn | None,
        controller: Controller,
        candidates: NDArray[np.float32],
        slots: int,
    ) -> None:
        self.slots = slots
        self.controller = controller
        self._eye = None if vae is None else InferenceEncoder(vae, slots)
        self._cell = None if mdnrnn is None else MdnRnnCell(mdnrnn, slots)
        self._candidates = torch.from_numpy(np.array(candidates, np.float32))
        self._weights = torch.zeros(slots, controller.parameters)
        self._h, self._c = torch.zeros(2, slots, 0 if mdnrnn is None else mdnrnn.hidden)
        self._server = auto_fire_for(controller.serve, slots)

    @property
    def space(self) -> ActionSpace:
        """The actions it takes."""
        return self.controller.space

    def begin(self, slot: int, job: EpisodeJob) -> None:
        """A new episode: h starts at zero."""
        with torch.inference_mode():
            self._weights[slot] = self._candidates[job.candidate]
            self._h[slot] = 0
            self._c[slot] = 0
        if self._server is not None:
            self._server.begin(slot)

    @torch.inference_mode()
    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> NDArray[Any]:
        """Actions for (slots, S, S, C) uint8 frames, or (slots, Z) latents."""
        seen = torch.from_numpy(frames)
        z = seen if self._eye is None else self._eye.see(seen)
        actions = self.controller.act(self._weights, torch.cat([z, self._h], 1))
        if self._server is not None:
            self._server.serve(actions, infos)
        if self._cell is not None:
            encoded = torch.from_numpy(self.controller.space.encode(actions))
            h, c = self._cell.step(z, encoded, (self._h, self._c))
            self._h.copy_(h)
            self._c.copy_(c)
        return actions


class DreamerAgent:
    """Acts for `slots` episodes at a time, always with the likeliest latents and action: what one slot does depends
    neither on chance nor on the others. `serve` is the action that puts a ball into play, None where nobody has to."""

    def __init__(self, model: Dreamer, space: ActionSpace, slots: int, serve: int | None = None) -> None:
        self.slots, self.space, self._model = slots, space, model
        self._state, self._actions = model.begin(slots)
        self._device = self._actions.device
        self._first = torch.ones(slots, device=self._device)
        self._seen: NDArray[np.uint8] | None = None
        self._server = auto_fire_for(serve, slots)

    def begin(self, slot: int, job: EpisodeJob) -> None:
        """A new episode: what came before is forgotten."""
        self._first[slot] = 1
        if self._server is not None:
            self._server.begin(slot)

    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> NDArray[Any]:
        """Actions for (slots, S, S, C) uint8 frames."""
        whole = np.concatenate([frames] * self._model.form.stack, -1)
        if self._seen is None:
            self._seen = whole
        new = self._first.cpu().numpy().astype(bool)
        self._seen = np.concatenate([self._seen[..., frames.shape[-1] :], frames], -1)
        self._seen[new] = whole[new]
        seen = torch.from_numpy(self._seen).to(self._device)
        self._actions, self._state = self._model.act(seen, self._state, self._actions, self._first, None)
        self._first.zero_()
        chosen = self.space.decode(self._actions.cpu().numpy())
        if self._server is not None:
            self._server.serve(chosen, infos)
            self._actions = torch.from_numpy(self.space.encode(chosen)).to(self._device)
        return chosen
