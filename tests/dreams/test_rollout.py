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


def test_a_controller_of_z_alone_receives_no_h(mdnrnn: MdnRnn) -> None:
    controller = Controller(4, SPACE, "argmax")
    assert rollout_dreams(
        mdnrnn, controller, torch.zeros(6, controller.parameters), initial_states(), 1.0, 5, 0
    ).lengths.all()
