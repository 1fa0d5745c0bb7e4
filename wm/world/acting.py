"""C in one environment, with its memory as a value."""

from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.errors import UsageProblem
from wm.models.vae.inference import InferenceEncoder
from wm.pretrained import TrainedController, TrainedMdnRnn, TrainedVae, controller_memory
from wm.rollouts.agents import VmcAgent
from wm.rollouts.loop import EpisodeJob


@dataclass(frozen=True)
class Memory:
    """What C remembers of an episode: M's state, the step before, a serve that is under way, and the state of the
    generator of a C that acts by samples. It is never changed, so an episode can be continued from it twice.
    `controller` is C's fingerprint."""

    controller: str = field(repr=False)
    episode: dict[str, Any] = field(repr=False)
    random: dict[str, Any] | None = field(repr=False)


class Actor:
    """Frames or V's latents -> C's actions, one environment at a time. Threads may share it."""

    def __init__(self, vae: TrainedVae, mdnrnn: TrainedMdnRnn, controller: TrainedController) -> None:
        model = controller_memory(mdnrnn, controller.config)
        self._agent = VmcAgent(None, model, controller.model, controller.parameters[None], 1)
        self._encoder = InferenceEncoder(vae.model, 1)
        self._controller = controller.artifact.fingerprint
        # A game's thread and a viewer's may ask at once, and the agent has one state.
        self._lock = Lock()

    def act(
        self, frame_or_z: NDArray[Any], memory: Memory | None, info: dict[str, Any] | None, seed: int
    ) -> tuple[Any, Memory]:
        """The action after a frame (S, S, C) uint8 or latents (Z,) float32, and the memory for the step that follows.
        None begins an episode, whose samples are drawn from `seed`. Raises UsageProblem for another C's memory."""
        if not isinstance(memory, Memory | None):
            raise UsageProblem(f"memory is a {type(memory).__name__}; expected what the last act returned, or None.")
        if memory is not None and memory.controller != self._controller:
            raise UsageProblem("memory is another C's; expected what the last act of this world returned, or None.")
        if not isinstance(info, dict | None):
            raise UsageProblem(f"info is a {type(info).__name__}; expected the environment's dict, or None.")
        with self._lock:
            return self._act(self._latents(frame_or_z), memory, info or {}, seed)

    def _latents(self, frame_or_z: NDArray[Any]) -> NDArray[np.float32]:
        if frame_or_z.dtype != np.uint8:
            return frame_or_z
        return self._encoder.encode(torch.from_numpy(np.ascontiguousarray(frame_or_z))[None]).numpy()[0]

    def _act(
        self, z: NDArray[np.float32], memory: Memory | None, info: dict[str, Any], seed: int
    ) -> tuple[Any, Memory]:
        agent = self._agent
        if memory is None:
            agent.begin(0, EpisodeJob(0, seed))
        else:
            agent.restore_episode(0, memory.episode)
            if agent.randoms is not None and memory.random is not None:
                agent.randoms[0].bit_generator.state = memory.random
        action = agent.act(z[None], [info])[0]
        random = None if agent.randoms is None else dict(agent.randoms[0].bit_generator.state)
        following = Memory(self._controller, agent.episode_state(0), random)
        return int(action) if agent.space.discrete else action, following
