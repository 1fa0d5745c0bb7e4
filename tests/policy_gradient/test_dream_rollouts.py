"""Steps in the dreams of an untrained M, whose inputs, ends and cuts can be told."""

from typing import Any

import numpy as np
import pytest
import torch

from wm.actions import ActionSpace
from wm.dreams.env import DreamConfig, Dreams, InitialStates
from wm.models.controller import SERVE_STEPS, Controller
from wm.models.mdnrnn.network import MdnRnn
from wm.policy_gradient.dream_rollouts import ENDED, DreamRecorder
from wm.policy_gradient.sources import Experience

Z, A, H, N, T = 2, 3, 8, 32, 20
SPACE = ActionSpace(count=A)


def recorder_of(serve: int | None = None, seed: int = 0, sticky: float = 0.0, at_start: bool = False) -> DreamRecorder:
    torch.manual_seed(0)
    memory = MdnRnn(Z, A, H, 2, 1.0).requires_grad_(False)
    with torch.no_grad():
        memory.heads.bias[-1] = -2.0  # some 12 % of steps end an episode
    z, bound = torch.arange(100.0).view(-1, 1).repeat(1, Z) + 10, torch.full((Z,), 5.0)
    action = torch.zeros(100, A) if at_start else torch.eye(A)[torch.arange(100) % A]
    initial = InitialStates(z, memory.initial_state(100), -bound, bound, z - 0.5, action)
    controller = Controller(2 * Z + A + H, SPACE, "categorical", None, 0, serve, (8,), True, True, True)
    parameters = torch.randn(controller.parameters).numpy() / 2
    config = DreamConfig(memory, initial, SPACE, 1.0, T)
    return DreamRecorder(config, controller, parameters, N, np.random.default_rng(seed), sticky)


def play(serve: int | None = None, seed: int = 0) -> Experience:
    recorder = recorder_of(serve, seed)
    for _ in range(T):
        recorder.step()
    return recorder.finish()


def test_dreams_start_from_real_states_and_inputs_are_those_of_real_episodes() -> None:
    rollout = play().rollout
    z, difference, before = (
        rollout.features[..., part] for part in (slice(Z), slice(Z, 2 * Z), slice(2 * Z, 2 * Z + A))
    )
    starts = torch.cat([torch.ones(1, N, dtype=torch.bool), rollout.cut[:-1]])
    assert starts[1:].any()
    assert torch.equal(starts, z[..., 0] > 5)  # real states are beyond the bounds of a dream
    assert (difference[starts] == 0.5).all()
    assert torch.equal(before[starts].argmax(-1), (z[starts][:, 0] - 10).long() % A)
    later = ~starts[1:]
    assert torch.allclose(difference[1:][later], (z[1:] - z[:-1])[later])
    assert torch.equal(before[1:][later].argmax(-1), rollout.choices[:-1][later])


def test_ends_discount_and_dreams_that_are_likely_over_are_cut_with_a_value_for_what_follows() -> None:
    experience = play()
    rollout, goes_on, returns = experience.rollout, torch.ones(N), torch.zeros(N)
    expected = []
    for step in range(T):
        returns += goes_on * rollout.rewards[step]
        goes_on = goes_on * rollout.discounts[step]
        cut = (goes_on < ENDED) | (step == T - 1)
        assert torch.equal(rollout.cut[step], cut)
        expected += returns[cut].tolist()
        goes_on[cut], returns[cut] = 1.0, 0.0
    assert np.allclose(sorted(experience.returns), sorted(expected), atol=1e-3)
    assert ((rollout.discounts > 0.5) & (rollout.discounts < 1)).all()
    assert torch.equal(experience.ends, rollout.cut)
    assert experience.env_steps == 0
    cut = rollout.cut.nonzero()
    assert len(rollout.successors) == len(cut)
    moved = rollout.successors[:, :Z] - rollout.features[..., :Z][rollout.cut]
    assert torch.allclose(rollout.successors[:, Z : 2 * Z], moved)  # not the next dream's first inputs
    assert (rollout.successors[:, 0].abs() <= 5).all()


def test_dreams_begin_with_a_serve_that_is_not_the_policys_own() -> None:
    rollout = play(serve=1).rollout
    since, own = torch.zeros(N), rollout.own
    for step in range(T):
        assert torch.equal(own[step], since >= SERVE_STEPS)
        since = torch.where(rollout.cut[step], 0.0, since + 1)
    following = ~rollout.cut[:-1] & ~own[:-1]
    assert (rollout.features[1:][following][:, 2 * Z : 2 * Z + A].argmax(-1) == 1).all()
    assert play().rollout.own.all()


def test_an_iteration_follows_from_its_seed() -> None:
    one, same, other = (play(seed=seed).rollout for seed in (0, 0, 1))
    assert torch.equal(one.features, same.features)
    assert torch.equal(one.log_probs, same.log_probs)
    assert not torch.equal(one.features, other.features)


def test_where_actions_are_sticky_the_one_before_is_carried_out_and_c_does_not_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carried_out: list[torch.Tensor] = []
    advance = Dreams.advance

    def spied(dreams: Dreams, actions: torch.Tensor) -> Any:
        carried_out.append(actions.argmax(-1))
        return advance(dreams, actions)

    monkeypatch.setattr(Dreams, "advance", spied)
    recorder = recorder_of(sticky=0.4)
    for _ in range(T):
        recorder.step()
    rollout, played = recorder.finish().rollout, torch.stack(carried_out)
    before = rollout.features[..., 2 * Z : 2 * Z + A].argmax(-1)
    starts = torch.cat([torch.ones(1, N, dtype=torch.bool), rollout.cut[:-1]])
    assert torch.equal(before[1:][~starts[1:]], rollout.choices[:-1][~starts[1:]])
    carried_before = torch.where(starts, before, torch.cat([played[:1], played[:-1]]))
    stuck = played != rollout.choices
    assert torch.equal(played[stuck], carried_before[stuck])
    could_be_stuck = carried_before != rollout.choices
    assert 0.3 < stuck.sum() / could_be_stuck.sum() < 0.5
    assert stuck[starts].any()


def test_the_first_action_of_an_episode_is_carried_out_although_actions_are_sticky(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carried_out: list[torch.Tensor] = []
    advance = Dreams.advance

    def spied(dreams: Dreams, actions: torch.Tensor) -> Any:
        carried_out.append(actions)
        return advance(dreams, actions)

    monkeypatch.setattr(Dreams, "advance", spied)
    recorder = recorder_of(sticky=0.4, at_start=True)
    for _ in range(T):
        recorder.step()
    assert all((actions.sum(1) == 1).all() for actions in carried_out)
