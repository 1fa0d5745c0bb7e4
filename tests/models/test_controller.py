import numpy as np
import pytest
import torch

from wm.actions import ActionSpace
from wm.errors import UsageProblem
from wm.models.controller import Controller, pick_head

DISCRETE = ActionSpace(count=3)
CAR = ActionSpace(low=(-1.0, 0.0, 0.0), high=(1.0, 1.0, 1.0))


def test_the_papers_controller_has_867_parameters() -> None:
    assert Controller(32 + 256, CAR, "tanh").parameters == 867


def test_every_policy_of_a_batch_acts_with_its_own_weights() -> None:
    controller = Controller(2, DISCRETE, "argmax")
    weights = torch.zeros(3, controller.parameters)
    for policy in range(3):
        weights[policy, controller.outputs * 2 + policy] = 1  # the bias of its own action
    assert controller.act(weights, torch.randn(3, 2)).tolist() == [0, 1, 2]


def test_the_ordered_head_goes_down_stays_and_goes_up() -> None:
    controller = Controller(1, DISCRETE, "ordered", (2, 0, 1))
    weights = torch.tensor([[1.0, 0.0]]).repeat(3, 1)
    assert controller.act(weights, torch.tensor([[-1.0], [0.1], [1.0]])).tolist() == [2, 0, 1]


def test_steering_is_symmetric_gas_starts_half_open_and_the_brake_closed() -> None:
    controller = Controller(1, CAR, "tanh")
    zero = torch.zeros(1, controller.parameters)
    assert controller.act(zero, torch.ones(1, 1)).tolist() == [[0.0, 0.5, 0.0]]
    weights = torch.full((1, controller.parameters), -5.0)
    assert np.allclose(controller.act(weights, torch.ones(1, 1)), [[-1.0, 0.0, 0.0]], atol=1e-3)


def test_hidden_units_are_a_tanh_layer_whose_outputs_are_scaled() -> None:
    controller = Controller(2, CAR, "tanh", hidden=4)
    weights, features = torch.randn(1, controller.parameters) / 3, torch.randn(1, 2)
    first, bias, second, last = weights[0].split([8, 4, 12, 3])
    u = 4.5 * 8**0.5 / 4**0.5 * (second.view(3, 4) @ torch.tanh(first.view(4, 2) @ features[0] + bias) + last)
    expected = torch.tanh(u) * torch.tensor([1, 0.5, 1]) + torch.tensor([0, 0.5, 0])
    assert np.allclose(controller.act(weights, features)[0], [*expected[:2], max(expected[2], 0)], atol=1e-6)


def test_a_head_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageProblem, match="head=tanh does not fit"):
        Controller(1, DISCRETE, "tanh")
    assert pick_head("auto", CAR, "auto") == "tanh"
    assert pick_head("auto", DISCRETE, "ordered") == "ordered"


def test_a_policy_with_layers_gives_the_same_packed_and_row_by_row() -> None:
    controller = Controller(5, DISCRETE, "categorical", layers=(16, 16))
    weights, features = torch.randn(1, controller.parameters) / 4, torch.randn(8, 5)
    one, two, three = (part for part in weights[0].split([96, 272, 51]))
    u = torch.nn.functional.silu(features @ one[:80].view(16, 5).T + one[80:])
    u = torch.nn.functional.silu(u @ two[:256].view(16, 16).T + two[256:])
    expected = u @ three[:48].view(3, 16).T + three[48:]
    assert torch.allclose(controller.evaluate(weights.expand(8, -1), features), expected, atol=1e-5)
    assert torch.allclose(controller.pack(weights[0], 8)(features), expected, atol=1e-5)


def test_features_are_z_the_difference_the_action_before_and_h_as_far_as_they_are_taken() -> None:
    z, before, action, h = (
        torch.tensor([[5.0]]),
        torch.tensor([[3.0]]),
        torch.tensor([[0.0, 1.0]]),
        torch.tensor([[9.0]]),
    )

    def features(inputs: int, **taken: bool) -> list[float]:
        return Controller(inputs, DISCRETE, "argmax", **taken).features(z, before, action, h)[0].tolist()  # type: ignore[arg-type]

    assert features(1) == [5]
    assert features(2) == [5, 9]
    assert features(2, difference=True) == [5, 2]
    assert features(5, difference=True, previous_action=True) == [5, 2, 0, 1, 9]


def test_gas_and_brake_are_one_axis_and_the_brake_does_not_lock_the_wheels() -> None:
    controller = Controller(1, CAR, "beta", opposed=(1, 2))
    assert controller.outputs == 4
    points = torch.tensor([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    assert np.allclose(controller.actions(points), [[-1, 1, 0], [0, 0, 0], [1, 0, 0.8]])
    alone = Controller(1, ActionSpace(low=(-2.0, 0.0), high=(2.0, 1.0)), "beta")
    assert np.allclose(alone.actions(torch.tensor([[0.25, 0.75]])), [[-1, 0.75]])


def test_a_categorical_head_chooses_among_the_ordered_actions() -> None:
    controller = Controller(1, ActionSpace(count=6), "categorical", (3, 0, 2))
    assert controller.outputs == 3
    assert controller.actions(torch.tensor([0, 1, 2])).tolist() == [3, 0, 2]
    with pytest.raises(UsageProblem, match="head=beta does not fit"):
        Controller(1, DISCRETE, "beta")
