"""Rollouts in the real environment, by worker processes.

A `Slot` is a place in which one training episode after another is played. Between two iterations it is a plain value:
the number of its episode, the actions played in it so far, and what the agent remembers of it. A worker keeps the
environments of its slots as they are; one that lacks a slot's environment rebuilds it by playing the actions again. So
a result depends neither on the number of workers, nor on those that were lost, nor on a kill.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.artifacts.json_reader import COUNT, NUMBER, Schema, between, list_of, list_of_each, or_null, table
from wm.envs.registry import EnvConfig
from wm.errors import UsageProblem
from wm.policy_gradient.ppo import Passes, Rollout
from wm.policy_gradient.sources import Experience
from wm.pretrained import TrainedMdnRnn
from wm.rollouts.agents import VmcAgent
from wm.rollouts.loop import EpisodeJob, lives_in
from wm.rollouts.players import NUM_ENVS, PolicySpec, make_agent, map_playing
from wm.rollouts.worker_process import heartbeat
from wm.rollouts.workers import Workers
from wm.seeding import episode_seed, generator
from wm.settings import ControllerSettings

# Four passes over four minibatches, as OpenAI's ppo2: 16 slots of 128 steps are 2,048 rows.
PASSES = Passes(4, 512)


def slot_schema(policy: PolicySpec, mdnrnn: TrainedMdnRnn) -> Schema:
    """The schema of a slot in which a policy with this M plays."""
    space, memory = mdnrnn.space, [0]
    if policy.controller.memory != "none":
        memory = [part.shape[-1] for part in mdnrnn.model.initial_state(1)]
    action = between(0, space.count - 1) if space.discrete else list_of(NUMBER, space.width)
    agent = table(
        {
            "action": list_of(NUMBER, space.width),
            "memory": list_of_each(*(list_of(NUMBER, width) for width in memory)),
        },
        {"z": list_of(NUMBER, mdnrnn.model.latent), "fire": list_of(or_null(COUNT), 2)},
    )
    return table({"number": COUNT, "episode": COUNT, "actions": list_of(action), "agent": or_null(agent)})


@dataclass(frozen=True)
class Slot:
    """A slot between two iterations: its number, the number of its episode, the actions of the episode so far, and the
    agent's state in it (None at its start)."""

    number: int
    episode: int = 0
    actions: list[Any] = field(default_factory=list)
    agent: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {"number": self.number, "episode": self.episode, "actions": self.actions, "agent": self.agent}


@dataclass(frozen=True)
class Played:
    """What slots played, as arrays that a worker can send: `steps` are the fields of a Rollout besides its
    `successors`; the returns of the episodes that ended, in their order; and environment steps."""

    steps: dict[str, NDArray[Any]]
    successors: NDArray[np.float32]
    slots: list[Slot]
    returns: list[float]
    env_steps: int

    @property
    def rollout(self) -> Rollout:
        """For the learner."""
        tensors = {name: torch.from_numpy(column) for name, column in self.steps.items()}
        return Rollout(**tensors, successors=torch.from_numpy(self.successors))

    @property
    def experience(self) -> Experience:
        """With what else an iteration gives."""
        rollout = self.rollout
        ends = (rollout.discounts == 0) | rollout.cut
        began = torch.tensor([not slot.actions for slot in self.slots])
        ends[-1] = (rollout.discounts[-1] == 0) | began  # every last step is cut, but most episodes go on
        return Experience(rollout, ends, self.returns, self.env_steps)


class RealSource:
    """Slots of the real environment, which worker processes share."""

    place, unit = "real", "environment steps"

    def __init__(
        self, settings: ControllerSettings, seed: int, policy: PolicySpec, mdnrnn: TrainedMdnRnn, workers: Workers
    ) -> None:
        self._slot = slot_schema(policy, mdnrnn)
        self.steps, self._horizon = settings.step_limit, settings.steps_per_place
        self.passes = PASSES.with_minibatch(settings.minibatch)
        self.iterations = math.ceil(self.steps / (settings.places * self._horizon * policy.env.action_repeat))
        self._seed, self._policy, self._workers = seed, policy, workers
        self._slots = [Slot(number) for number in range(settings.places)]

    def play(self, parameters: NDArray[np.float32], iteration: int) -> Experience:
        """As Source: goes on in every slot."""
        played = play_iteration(
            self._workers, self._policy, parameters, self._slots, self._horizon, self._seed, iteration
        )
        self._slots = played.slots
        return played.experience

    def played(self, lines: Sequence[dict[str, Any]]) -> int:
        """As Source: those of validations included."""
        return sum(line["env_steps"] for line in lines)

    @property
    def state_schemas(self) -> dict[str, Schema]:
        """As Source."""
        return {"slots": list_of(self._slot, len(self._slots))}

    def state(self) -> dict[str, Any]:
        """As Source: the slots."""
        return {"slots": [slot.as_json() for slot in self._slots]}

    def load_state(self, state: dict[str, Any]) -> None:
        """As Source."""
        self._slots = [Slot(**slot) for slot in state["slots"]]


class Place:
    """The live environment of a slot."""

    def __init__(self, config: EnvConfig, number: int, seed: int) -> None:
        self._env, self._number, self._seed = config.make(), number, seed
        self._discrete = isinstance(self._env.action_space, gym.spaces.Discrete)
        self._begin(0)

    @property
    def job(self) -> EpisodeJob:
        """The episode."""
        path = "controller", "slot", self._number, self.episode
        return EpisodeJob(self._number, episode_seed("train", self._seed, *path))

    def _begin(self, episode: int) -> None:
        self.episode, self.actions = episode, list[Any]()
        self.episode_return, self.idle = 0.0, 0
        self.frame, self.info = self._env.reset(seed=self.job.seed)

    def begin_next(self) -> None:
        """The next episode."""
        self._begin(self.episode + 1)

    def bring_to(self, slot: Slot) -> bool:
        """Put the environment where the slot is. False if it does not repeat itself: then a new episode begins."""
        if (self.episode, self.actions) == (slot.episode, slot.actions):
            return True
        self._begin(slot.episode)
        for action in slot.actions:
            # Rebuilding plays up to a whole episode, in which a worker would otherwise seem to hang.
            heartbeat()
            _, terminated, truncated, _, _ = self.step(action if self._discrete else np.array(action, np.float32))
            if terminated or truncated:
                self.begin_next()
                return False
        return True

    def step(self, action: Any) -> tuple[float, bool, bool, bool, int]:
        """Reward, whether the episode terminated or was truncated, whether a life was lost, and environment steps."""
        lives, before = lives_in(self.info), self._env.steps
        self.actions.append(int(action) if self._discrete else action.tolist())
        self.frame, reward, terminated, truncated, self.info = self._env.step(action)
        self.episode_return += reward
        self.idle = 0 if reward > 0 else self.idle + 1
        lost = lives_in(self.info) < lives
        return reward, bool(terminated), bool(truncated), lost, self._env.steps - before

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def slot(self, agent: dict[str, Any] | None) -> Slot:
        """The slot as a value."""
        return Slot(self._number, self.episode, list(self.actions), agent if self.actions else None)


def require_instances(config: EnvConfig) -> None:
    """Raise UsageProblem if a process may not play a group of these environments in turn."""
    if 0 < config.envs_per_process < NUM_ENVS:
        raise UsageProblem(
            f"--algo ppo plays {NUM_ENVS} instances of {config.name} in a process, but its dataset says "
            f"envs_per_process={config.envs_per_process}; use --algo cma."
        )


_places: dict[tuple[EnvConfig, int, int], Place] = {}  # of this process: those of a training's slots


def play_slots(
    spec: PolicySpec, parameters: NDArray[np.float32], groups: Sequence[Sequence[Slot]], steps: int, path: Sequence[Any]
) -> list[Played]:
    """Play `steps` steps in every slot of each group, with the policy of these parameters. `path` names the training
    and the iteration: (seed, iteration). Runs in a worker."""
    return [_play_group(spec, parameters, slots, steps, *path) for slots in groups]


def _places_of(config: EnvConfig, slots: Sequence[Slot], seed: int) -> list[Place]:
    """The places of slots in this process; those of other trainings are closed."""
    # A worker keeps the environments of one training: those of others would only take memory.
    for key in [key for key in _places if key[0] != config or key[2] != seed]:
        _places.pop(key).close()
    for slot in slots:
        key = config, slot.number, seed
        if key not in _places:
            _places[key] = Place(config, slot.number, seed)
    return [_places[config, slot.number, seed] for slot in slots]


def _play_group(
    spec: PolicySpec, parameters: NDArray[np.float32], slots: Sequence[Slot], steps: int, seed: int, iteration: int
) -> Played:
    places = _places_of(spec.env, slots, seed)
    agent = make_agent(spec, NUM_ENVS, parameters[None])
    assert isinstance(agent, VmcAgent)
    for row, (slot, place) in enumerate(zip(slots, places, strict=True)):
        restored = place.bring_to(slot)
        agent.begin(row, place.job)
        if restored and slot.agent is not None:
            agent.restore_episode(row, slot.agent)
    recorder = Recorder(agent, places, [generator(seed, "ppo", iteration, slot.number) for slot in slots])
    for _ in range(steps):
        heartbeat()
        recorder.step(spec.env.max_idle)
    return recorder.finish()


class Recorder:
    """Plays steps in places, and keeps what a learner needs of them."""

    def __init__(self, agent: VmcAgent, places: list[Place], randoms: list[np.random.Generator]) -> None:
        self._agent, self._places = agent, places
        self._frames = np.stack([place.frame for place in places])
        self._steps: list[dict[str, NDArray[Any]]] = []
        self._outputs: list[Tensor] = []
        self._successors: dict[tuple[int, int], Tensor] = {}  # by step and row
        self._returns: list[float] = []
        self._env_steps = 0
        agent.randoms = randoms

    def step(self, max_idle: int) -> None:
        """One action in every place."""
        agent, places = self._agent, self._places
        features = agent.observe(self._frames)
        actions = agent.decide(features, [place.info for place in places])
        rewards, ended = np.zeros(len(places), np.float32), np.zeros(len(places), bool)
        truncated, over = ended.copy(), ended.copy()
        for row, place in enumerate(places):
            rewards[row], terminated, out_of_time, lost, played = place.step(actions[row])
            self._env_steps += played
            self._frames[row] = place.frame
            ended[row] = terminated or lost
            over[row] = terminated or out_of_time or 0 < max_idle <= place.idle
            truncated[row] = over[row] and not ended[row]
        self._steps.append(
            {
                "features": features.numpy(),
                "choices": agent.choices.numpy(),
                "rewards": rewards,
                "discounts": 1 - ended.astype(np.float32),
                "own": ~agent.served,
                "cut": truncated,
            }
        )
        self._outputs.append(agent.outputs)
        if truncated.any():
            self._keep_successors(np.flatnonzero(truncated))
        for number in np.flatnonzero(over):
            self._begin_next(int(number))

    def _keep_successors(self, rows: NDArray[np.int64]) -> None:
        features = self._agent.observe(self._frames)
        for row in rows:
            self._successors[len(self._steps) - 1, int(row)] = features[row]

    def _begin_next(self, row: int) -> None:
        place = self._places[row]
        self._returns.append(place.episode_return)
        place.begin_next()
        self._frames[row] = place.frame
        self._agent.begin(row, place.job)

    def finish(self) -> Played:
        """All that was played. The last step of every place is cut."""
        last = self._steps[-1]["cut"]
        self._keep_successors(np.flatnonzero(~last))
        last[:] = True
        columns = {name: np.stack([step[name] for step in self._steps]) for name in self._steps[0]}
        distribution, choices = self._agent.controller.distribution, torch.from_numpy(columns["choices"]).flatten(0, 1)
        assert distribution is not None
        log_probs = distribution.log_prob(torch.cat(self._outputs), choices)
        columns["log_probs"] = log_probs.view(columns["rewards"].shape).numpy()
        successors = torch.stack([self._successors[key] for key in sorted(self._successors)]).numpy()
        slots = [place.slot(self._agent.episode_state(row)) for row, place in enumerate(self._places)]
        return Played(columns, successors, slots, self._returns, self._env_steps)


def play_iteration(
    workers: Workers,
    spec: PolicySpec,
    parameters: NDArray[np.float32],
    slots: Sequence[Slot],
    steps: int,
    seed: int,
    iteration: int,
) -> Played:
    """Play `steps` steps in every slot, in groups that the workers share. The same for any number of workers."""
    groups = [slots[first : first + NUM_ENVS] for first in range(0, len(slots), NUM_ENVS)]
    shares = [share.tolist() for share in np.array_split(np.arange(len(groups)), min(workers.count, len(groups)))]
    tasks = [(spec, parameters, [groups[i] for i in share], steps, (seed, iteration)) for share in shares]
    # By number: which worker answers first must not change the order of the rows.
    results = sorted(map_playing(workers, play_slots, tasks), key=lambda result: result[0])
    return _joined([played for _, share in results for played in share])


def _joined(groups: list[Played]) -> Played:
    """The groups side by side."""
    columns = {name: np.concatenate([group.steps[name] for group in groups], 1) for name in groups[0].steps}
    successors = np.zeros((*columns["cut"].shape, groups[0].successors.shape[-1]), np.float32)
    for number, group in enumerate(groups):
        successors[:, number * NUM_ENVS : (number + 1) * NUM_ENVS][group.steps["cut"]] = group.successors
    return Played(
        columns,
        successors[columns["cut"]],
        [slot for group in groups for slot in group.slots],
        [value for group in groups for value in group.returns],
        sum(group.env_steps for group in groups),
    )
