from dataclasses import replace

import pytest
import torch

from tests.dreams.test_env import SPACE, initial_states, mdnrnn
from wm.dreams.rollout import rollout_dreams
from wm.models.controller import Controller
from wm.models.mdnrnn.network import MdnRnn

__all__ = ["mdnrnn"]  # a fixture


def test_a_dream_that_terminates_at_once_has_length_one(mdnrnn: MdnRnn) -> None:
    with torch.no_grad():
        mdnrnn.heads.bias[-1] = 60.0
    controller = Controller(12, SPACE, "argmax")
    dreams = rollout_dreams(mdnrnn, controller, torch.zeros(6, controller.parameters), initial_states(), 1.0, 30, 0)
    assert dreams.lengths.tolist() == [1] * 6
    assert dreams.terminated.all()


def test_returns_lengths_and_variance_end_with_each_dream(mdnrnn: MdnRnn) -> None:
    controller = Controller(12, SPACE, "argmax")
    initial = initial_states(64)
    with torch.no_grad():  # every reward is 1
        mdnrnn.heads.weight[-2], mdnrnn.heads.bias[-2] = 0.0, 1.0
    dreams = rollout_dreams(mdnrnn, controller, torch.zeros(64, controller.parameters), initial, 1.0, 40, 0)
    assert dreams.terminated.any()
    assert (dreams.lengths[~dreams.terminated] == 40).all()
    assert len(set(dreams.lengths)) > 3
    assert dreams.returns == pytest.approx(dreams.lengths)
    assert (dreams.z_var > 0).all()


def test_a_dream_starts_with_a_serve_where_the_player_serves(mdnrnn: MdnRnn) -> None:
    returns, initial = [], initial_states()
    for serve in (None, 2):
        controller = Controller(12, SPACE, "argmax", serve=serve)
        dreams = rollout_dreams(mdnrnn, controller, torch.zeros(6, controller.parameters), initial, 1.0, 1, 0)
        returns.append(dreams.returns.sum())
    assert returns[0] != returns[1]


def test_c_sees_the_step_before_a_dreams_first(mdnrnn: MdnRnn, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(2 * 4 + 3, SPACE, "argmax", difference=True, previous_action=True)
    initial = initial_states()
    before = replace(initial, z_before=initial.z - 0.5, action_before=torch.eye(3)[torch.arange(6) % 3])
    seen = []
    features = Controller.features
    monkeypatch.setattr(Controller, "features", lambda *given: seen.append(features(*given)) or seen[-1])
    rollout_dreams(mdnrnn, controller, torch.zeros(6, controller.parameters), before, 1.0, 2, 0)
    assert torch.allclose(seen[0][:, 4:8], torch.full((6, 4), 0.5))
    assert torch.equal(seen[0][:, 8:], before.action_before)


def test_a_controller_of_z_alone_receives_no_h(mdnrnn: MdnRnn) -> None:
    controller = Controller(4, SPACE, "argmax")
    assert rollout_dreams(
        mdnrnn, controller, torch.zeros(6, controller.parameters), initial_states(), 1.0, 5, 0
    ).lengths.all()
