import pytest

from wm.actions import ActionSpace
from wm.episodes.export import _gymnasium_space

BOXES = [ActionSpace(low=(-2.0,), high=(5.0,)), ActionSpace(low=(-1.0, 0.0, 0.0), high=(1.0, 1.0, 1.0))]


@pytest.mark.parametrize("space", BOXES, ids=("box 1", "box 3"))
def test_a_box_of_actions_keeps_its_bounds(space: ActionSpace) -> None:
    box = _gymnasium_space(space)
    assert (box.low.tolist(), box.high.tolist()) == (list(space.low), list(space.high))
