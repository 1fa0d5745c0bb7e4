"""Slots in an environment whose observations are latents already, so that every input can be told."""

import json
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
import torch

from wm.actions import ActionSpace
from wm.artifacts.json_reader import validate
from wm.envs.registry import EnvConfig
from wm.errors import BadData, UsageProblem
from wm.models.controller import SERVE_STEPS, Controller
from wm.models.mdnrnn.network import MdnRnn
from wm.models.mdnrnn.predictor import Predictor
from wm.models.mdnrnn.rollout_network import RolloutNetwork
from wm.policy_gradient.real_rollouts import Place, Played, Recorder, Slot, require_instances, slot_schema
from wm.rollouts.agents import VmcAgent
from wm.rollouts.players import NUM_ENVS
from wm.seeding import generator

Z = 2


class WalkEnv(gym.Env[Any, Any]):
    """A walk in the plane. It terminates beyond 3 to the right, loses one of two lives beyond 3 to the left, and is
    truncated after 9 steps."""

    action_space: gym.Space[Any] = gym.spaces.Discrete(3)

    def __init__(self, continuous: bool) -> None:
        if continuous:
            self.action_space = gym.spaces.Box(np.array([-1, 0, 0], np.float32), np.ones(3, np.float32))
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.lives = 0, 2
        self.at = self.np_random.uniform(-2, 2, Z).astype(np.float32)
        return self.at.copy(), {"lives": self.lives}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = float(np.ravel(action)[0]) - (1 if np.ndim(action) == 0 else 0)
        self.at = (self.at + np.array([move, self.np_random.normal()])).astype(np.float32)
        self.steps += 1
        if self.at[0] < -3:
            self.lives, self.at[0] = self.lives - 1, 0
        ended = self.at[0] > 3 or not self.lives
        return self.at.copy(), float(move), bool(ended), self.steps >= 9, {"lives": self.lives}


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (3, 2, True),
        (np.int64(3), np.float32(2), True),
        (3, 3, False),
        (2, 3, False),
        (None, 2, False),
        ({"me": 3}, {"me": 2}, False),
        (np.array([3, 3]), np.array([2, 3]), False),
        ("two", "one", False),
        ([3], [2], False),
        pytest.param(10**400, 2, False, id="of 401 digits"),
        (np.complex64(3), np.complex64(2), False),
    ],
)
def test_a_life_is_lost_where_a_number_falls_and_nothing_else_is_a_number(before: Any, after: Any, lost: bool) -> None:
    place = Place(Config(), 0, 0)  # type: ignore[arg-type]
    place.info = {"lives": before}
    place._env = Mock(steps=0, step=lambda _: (np.zeros(Z), 0.0, False, False, {"lives": after}))
    assert place.step(1)[3] is lost


@dataclass(frozen=True)
class Config:
    continuous: bool = False

    def make(self) -> WalkEnv:
        return WalkEnv(self.continuous)


def controller_of(config: Config, serve: int | None = None) -> Controller:
    space = ActionSpace.of(WalkEnv(config.continuous).action_space)
    head, opposed = ("beta", (1, 2)) if config.continuous else ("categorical", None)
    inputs = 2 * Z + space.width + 8
    return Controller(inputs, space, head, None, 0, serve, (8,), True, True, True, opposed)


def play(config: Config, slots: list[Slot], iteration: int, places: list[Place], serve: int | None = None,
         max_idle: int = 0) -> Played:  # fmt: skip
    controller = controller_of(config, serve)
    memory = MdnRnn(Z, controller.space.width, 8, 2, 1.0)
    parameters = torch.randn(1, controller.parameters, generator=torch.Generator().manual_seed(0))
    agent = VmcAgent(None, memory, controller, (parameters / 2).numpy(), NUM_ENVS)
    for row, (slot, place) in enumerate(zip(slots, places, strict=True)):
        place.bring_to(slot)
        agent.begin(row, place.job)
        if slot.agent is not None:
            agent.restore_episode(row, slot.agent)
    recorder = Recorder(agent, places, [generator(0, "ppo", iteration, slot.number) for slot in slots])
    for _ in range(25):
        recorder.step(max_idle)
    return recorder.finish()


def new_places(config: Config) -> list[Place]:
    return [Place(config, number, 0) for number in range(NUM_ENVS)]  # type: ignore[arg-type]


def iterations(config: Config, rebuilt: bool, serve: int | None = None) -> list[Played]:
    torch.manual_seed(0)
    slots, places, played = [Slot(number) for number in range(NUM_ENVS)], new_places(config), list[Played]()
    for iteration in range(3):
        torch.manual_seed(0)  # M's weights
        played.append(play(config, slots, iteration, places, serve))
        slots = played[-1].slots
        if rebuilt:
            slots = [Slot(**json.loads(json.dumps(slot.as_json()))) for slot in slots]
            places = new_places(config)
    return played


@pytest.mark.parametrize(
    "m",
    [MdnRnn(Z, 3, 8, 2, 1.0), RolloutNetwork(Z, 3, 8, 8), RolloutNetwork(Z, 3, 0, 8)],
    ids=["paper", "rollout", "no h"],
)
def test_the_state_of_every_m_is_one_that_a_checkpoint_may_have(m: Predictor) -> None:
    controller = controller_of(Config())
    agent = VmcAgent(None, m, controller, np.zeros((1, controller.parameters), np.float32), 1)
    slot = Slot(0, agent=agent.episode_state(0)).as_json()
    schema = slot_schema(Mock(controller=Mock(memory="trained")), Mock(space=controller.space, model=m))
    validate(slot, "a checkpoint", schema)
    for part in slot["agent"]["memory"]:
        part.append(0.5)
        with pytest.raises(BadData):
            validate(slot, "a checkpoint", schema)
        part.pop()


def test_a_slot_that_is_rebuilt_from_its_value_goes_on_as_the_undisturbed_one() -> None:
    for config in (Config(), Config(continuous=True)):
        serve = None if config.continuous else 1
        for one, two in zip(iterations(config, False, serve), iterations(config, True, serve), strict=True):
            assert all(np.array_equal(one.steps[name], two.steps[name]) for name in one.steps)
            assert np.array_equal(one.successors, two.successors)
            assert [slot.as_json() for slot in one.slots] == [slot.as_json() for slot in two.slots]
            assert (one.returns, one.env_steps) == (two.returns, two.env_steps)
            assert one.env_steps == 25 * NUM_ENVS


def test_inputs_are_z_its_difference_and_the_action_before_and_zeros_at_a_start() -> None:
    (played, *_), width = iterations(Config(), False), 3
    features, choices = played.steps["features"], played.steps["choices"]
    z, difference, before = features[..., :Z], features[..., Z : 2 * Z], features[..., 2 * Z : 2 * Z + width]
    starts = np.concatenate([np.ones((1, NUM_ENVS), bool), (before[1:] == 0).all(-1)])
    assert 5 < starts[1:].sum() < 60
    assert not difference[starts].any()
    assert not features[starts][:, 2 * Z + width :].any()  # h
    later = ~starts[1:]
    assert np.allclose(difference[1:][later], (z[1:] - z[:-1])[later], atol=1e-6)
    assert np.array_equal(before[1:][later].argmax(-1), choices[:-1][later])


def test_ends_and_lost_lives_have_no_future_and_truncations_have_that_of_their_last_frame() -> None:
    (played, *_) = iterations(Config(), False)
    steps = played.steps
    z = steps["features"][..., :Z]
    right = (z[:-1, :, 0] > 1) & (steps["choices"][:-1] == 2) & (z[:-1, :, 0] + 1 > 3)
    left = (z[:-1, :, 0] - 1 < -3) & (steps["choices"][:-1] == 0)
    assert (steps["discounts"][:-1][right | left] == 0).all()
    assert (steps["discounts"][:-1] == 0).sum() == (right | left).sum() > 5
    inside = steps["cut"][:-1]
    assert inside.any()
    assert steps["cut"][-1].all()
    assert not (steps["cut"][:-1] & (steps["discounts"][:-1] == 0)).any()
    successors = played.successors[: inside.sum()]
    moved = successors[:, 0] - z[:-1][inside][:, 0]
    assert np.allclose(moved, steps["choices"][:-1][inside] - 1, atol=1e-6)  # not the next episode's first frame
    rows = steps["cut"].sum()
    assert played.successors.shape == (rows, steps["features"].shape[-1])


def test_an_environment_that_does_not_repeat_itself_goes_on_with_a_new_episode() -> None:
    place = Place(Config(), 0, 0)  # type: ignore[arg-type]
    assert not place.bring_to(Slot(0, 4, [1] * 40, {}))  # truncated after 9 steps
    assert (place.episode, place.actions) == (5, [])
    assert place.bring_to(Slot(0, 2, [1, 1], {}))
    assert (place.episode, place.actions) == (2, [1, 1])


def test_an_environment_of_one_instance_a_process_is_refused() -> None:
    require_instances(EnvConfig("Pong"))
    with pytest.raises(UsageProblem, match=r"8 instances of Pong in a process, .* envs_per_process=1; use --algo cma"):
        require_instances(EnvConfig("Pong", envs_per_process=1))


def test_serves_are_not_the_policys_own() -> None:
    (played, *_) = iterations(Config(), False, serve=1)
    own = played.steps["own"]
    assert not own[:SERVE_STEPS].any()
    assert own[SERVE_STEPS].any()
    before = played.steps["features"][..., 2 * Z : 2 * Z + 3]
    assert (before[1:][~own[:-1] & (before[1:] != 0).any(-1)].argmax(-1) == 1).all()


def test_an_episode_without_reward_is_truncated() -> None:
    config = Config()
    played = play(config, [Slot(number) for number in range(NUM_ENVS)], 0, new_places(config), max_idle=2)
    assert (played.steps["rewards"][1:][played.steps["cut"][1:]] <= 0).any()
    assert len(played.returns) > 25 * NUM_ENVS / 9


def test_an_episode_that_is_truncated_at_an_iterations_last_step_has_ended() -> None:
    """Else its return goes on in the next one's, from which rewards are scaled."""
    second = iterations(Config(continuous=True), rebuilt=False)[1]
    (row,) = [row for row, slot in enumerate(second.slots) if not slot.actions]
    assert second.rollout.discounts[-1, row] == 1, "truncated, not terminated"
    ends = second.experience.ends
    assert ends[-1, row]
    assert int(ends.sum()) == len(second.returns)
