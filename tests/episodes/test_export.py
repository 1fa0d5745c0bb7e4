"""What Minari reads is what was written, for every kind of action and of frame."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.conftest import make_episode
from wm.actions import ActionSpace
from wm.episodes.export import _gymnasium_space, write_minari
from wm.episodes.schema import Episode

BOXES = [ActionSpace(low=(-2.0,), high=(5.0,)), ActionSpace(low=(-1.0, 0.0, 0.0), high=(1.0, 1.0, 1.0))]
SPACES = [ActionSpace(count=3), *BOXES]


def episode(index: int, space: ActionSpace, channels: int) -> Episode:
    real = make_episode(index, rows=10 + index)
    actions: Any = real.actions
    if not space.discrete:
        shape = (real.rows, space.width)
        actions = np.random.default_rng(index).uniform(space.low, space.high, shape).astype(np.float32)
    return replace(real, frames=real.frames[..., :channels].copy(), actions=actions)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("space", SPACES, ids=("discrete", "box 1", "box 3"))
def test_minari_reads_discrete_and_continuous_actions_gray_and_colour(
    space: ActionSpace, channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari", reason="the extra minari is not installed")
    pytest.importorskip("h5py", reason="the extra minari is not installed")
    recipe = {"env": {"name": "Box"}, "policy": "random"}
    dataset: Any = SimpleNamespace(recipe=recipe, actions=space, frame_shape=(32, 32, channels))
    episodes = [episode(index, space, channels) for index in range(3)]
    write_minari(tmp_path, dataset, episodes[:2])
    write_minari(tmp_path, dataset, episodes[2:])  # appends
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    loaded = minari.load_dataset("wm/box-v0")
    assert loaded.action_space == _gymnasium_space(space)
    assert loaded.total_episodes == 3
    for real, read in zip(episodes, loaded.iterate_episodes(), strict=True):
        assert np.array_equal(read.actions, real.actions[:-1])
        assert np.array_equal(read.observations, real.frames)
        assert np.allclose(read.rewards, real.rewards[:-1])


@pytest.mark.parametrize("space", BOXES, ids=("box 1", "box 3"))
def test_a_box_of_actions_keeps_its_bounds(space: ActionSpace) -> None:
    box = _gymnasium_space(space)
    assert (box.low.tolist(), box.high.tolist()) == (list(space.low), list(space.high))
