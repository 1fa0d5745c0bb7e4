"""Rollouts in the dream: many dreams at a time, each from a real state.

C is given the reward M expects, and the probability that the episode ended here discounts what follows. Where a dream
has more likely ended than not, it is cut and another begins in its place: what M shows after an end was never in its
data.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.artifacts.json_reader import Schema
from wm.dreams.env import DreamConfig, Dreams, InitialStates
from wm.models.controller import SERVE_STEPS, Controller
from wm.policy_gradient.ppo import Passes, Rollout
from wm.policy_gradient.sources import Experience
from wm.pretrained import TrainedMdnRnn
from wm.seeding import generator
from wm.settings import ControllerSettings
from wm.training.precision import pick

PASSES = Passes(2, 2048)  # dreams are cheaper than gradient steps, so steps are learned from half as often
ENDED = 0.5  # a dream whose probability to go on has fallen below is cut


class DreamSource:
    """Dreams of M from `initial` states, for a fixed number of steps in each iteration."""

    place, unit = "dream", "dream steps"

    def __init__(
        self,
        settings: ControllerSettings,
        seed: int,
        mdnrnn: TrainedMdnRnn,
        controller: Controller,
        initial: InitialStates,
    ) -> None:
        self.steps, self.passes = settings.max_dream_steps, PASSES.with_minibatch(settings.minibatch)
        self._seed, self._controller = seed, controller
        self._count, self._horizon = settings.places, settings.steps_per_place
        self._sticky = settings.sticky_share
        self.iterations = math.ceil(self.steps / (self._count * self._horizon))
        temperature, space = float(settings.temperature), mdnrnn.space
        self._config = DreamConfig(mdnrnn.model, initial, space, temperature, self._horizon, dream_format())

    def play(self, parameters: NDArray[np.float32], iteration: int) -> Experience:
        """As Source: the state is none, every iteration begins new dreams."""
        random = generator(self._seed, "ppo dreams", iteration)
        recorder = DreamRecorder(self._config, self._controller, parameters, self._count, random, self._sticky)
        for _ in range(self._horizon):
            recorder.step()
        return recorder.finish()

    def played(self, lines: Sequence[dict[str, Any]]) -> int:
        """As Source: every iteration has as many."""
        return len(lines) * self._count * self._horizon

    @property
    def state_schemas(self) -> dict[str, Schema]:
        """As Source."""
        return {}

    def state(self) -> dict[str, Any]:
        """As Source."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """As Source."""


def dream_format() -> torch.dtype:
    """Of M's matrix products in a dream."""
    return pick("auto", torch.device("cpu")).dtype


class DreamRecorder:
    """Plays steps in dreams, and keeps what a learner needs of them. Where the player serves, dreams begin with a
    serve, as real episodes do. In a `sticky` share of the steps the action before is carried out again; C does not
    see that."""

    def __init__(
        self,
        config: DreamConfig,
        controller: Controller,
        parameters: NDArray[np.float32],
        count: int,
        random: np.random.Generator,
        sticky: float = 0.0,
    ) -> None:
        self._config, self._controller, self._random = config, controller, random
        self._sticky = sticky
        self._network = controller.pack(torch.from_numpy(parameters), count)
        initial = config.sample_states(random, count)
        # 62 bits, the largest that both generators take as a seed.
        self._dreams = Dreams(config.mdnrnn, initial, config.temperature, int(random.integers(1 << 62)), config.dtype)
        self._z_before, self._action_before = initial.z_before, initial.action_before
        self._carried_out = initial.action_before
        self._serves = np.full(count, 0 if controller.serve is None else SERVE_STEPS)
        # float64: a dream's return is a sum of many small expectations.
        self._goes_on, self._return = torch.ones(count), torch.zeros(count, dtype=torch.float64)
        self._steps: dict[str, list[Tensor]] = defaultdict(list)
        self._outputs: list[Tensor] = []
        self._successors: list[Tensor] = []
        self._following = torch.zeros(count, 0)  # C's inputs after the last step
        self._returns: list[float] = []

    def _features(self) -> Tensor:
        dreams = self._dreams
        return self._controller.features(dreams.z, self._z_before, self._action_before, dreams.hidden)

    @torch.inference_mode()
    def step(self) -> None:
        """One action in every dream."""
        features = self._features()
        outputs = self._network(features)
        choices = self._controller.choose(outputs, self._random)
        actions = self._controller.actions(choices)
        served = self._serves > 0
        if served.any():
            actions[served] = self._controller.serve
            self._serves[served] -= 1
        self._z_before, self._action_before = self._dreams.z, self._config.encode(actions)
        self._carried_out = self._stuck(self._action_before)
        sample = self._dreams.advance(self._carried_out)
        self._return += self._goes_on * sample.reward
        self._goes_on = self._goes_on * (1 - sample.end)
        cut = self._goes_on < ENDED
        step = {"features": features, "choices": choices, "rewards": sample.reward, "discounts": 1 - sample.end}
        for name, value in (step | {"own": torch.from_numpy(~served), "cut": cut}).items():
            self._steps[name].append(value)
        self._outputs.append(outputs)
        self._following = self._features()
        self._successors.append(self._following[cut])
        if cut.any():
            self._begin(cut)

    def _stuck(self, actions: Tensor) -> Tensor:
        """What is carried out of these actions (N, A). At an episode's start there is none before, all zeros."""
        if not self._sticky:
            return actions
        stuck = torch.from_numpy(self._random.random(len(actions)) < self._sticky) & self._carried_out.any(1)
        return torch.where(stuck[:, None], self._carried_out, actions)

    def _begin(self, rows: Tensor) -> None:
        """New dreams in the place of these, (N,) bool."""
        self._returns += self._return[rows].tolist()
        numbers = np.flatnonzero(rows.numpy())
        initial = self._config.sample_states(self._random, len(numbers))
        self._dreams.restart(numbers, initial)
        # Clones: the tensors of earlier steps are kept for the update, and must not change.
        self._z_before, self._action_before = self._z_before.clone(), self._action_before.clone()
        self._carried_out = self._carried_out.clone()
        self._z_before[rows], self._action_before[rows] = initial.z_before, initial.action_before
        self._carried_out[rows] = initial.action_before
        self._goes_on, self._return = self._goes_on.masked_fill(rows, 1.0), self._return.masked_fill(rows, 0.0)
        if self._controller.serve is not None:
            self._serves[numbers] = SERVE_STEPS

    def finish(self) -> Experience:
        """All that was played. The last step of every dream is cut."""
        columns = {name: torch.stack(steps) for name, steps in self._steps.items()}
        self._returns += self._return[~columns["cut"][-1]].tolist()
        columns["cut"][-1] = True
        self._successors[-1] = self._following
        distribution = self._controller.distribution
        assert distribution is not None
        log_probs = distribution.log_prob(torch.cat(self._outputs), columns["choices"].flatten(0, 1))
        rollout = Rollout(
            **columns, log_probs=log_probs.view(columns["rewards"].shape), successors=torch.cat(self._successors)
        )
        return Experience(rollout, rollout.cut, [round(value, 4) for value in self._returns], 0)
