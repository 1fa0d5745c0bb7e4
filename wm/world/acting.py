"""C in one environment, with its memory as a value."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.pretrained import TrainedController, TrainedMdnRnn, controller_memory
from wm.rollouts.agents import VmcAgent
from wm.rollouts.loop import EpisodeJob


@dataclass(frozen=True)
class Memory:
    """What C remembers of an episode: M's state, the step before, a serve that is under way, and the state of the
    generator of a C that acts by samples. It is never changed, so an episode can be continued from it twice."""

    episode: dict[str, Any] = field(repr=False)
    random: dict[str, Any] | None = field(repr=False)


class Actor:
    """V's latents -> C's actions, one environment at a time."""

    def __init__(self, mdnrnn: TrainedMdnRnn, controller: TrainedController) -> None:
        model = controller_memory(mdnrnn, controller.config)
        self._agent = VmcAgent(None, model, controller.model, controller.parameters[None], 1)

    def act(self, z: NDArray[np.float32], memory: Memory | None, info: dict[str, Any], seed: int) -> tuple[Any, Memory]:
        """The action after latents z (Z,), and the memory for the step that follows. None begins an episode, whose
        samples are drawn from `seed`."""
        agent = self._agent
        if memory is None:
            agent.begin(0, EpisodeJob(0, seed))
        else:
            agent.restore_episode(0, memory.episode)
            if agent.randoms is not None and memory.random is not None:
                agent.randoms[0].bit_generator.state = memory.random
        action = agent.act(z[None], [info])[0]
        random = None if agent.randoms is None else dict(agent.randoms[0].bit_generator.state)
        following = Memory(agent.episode_state(0), random)
        return int(action) if agent.space.discrete else action, following
