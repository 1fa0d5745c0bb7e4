"""The replay's bounds and refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import RECIPE, TINY, write_dataset
from tests.models.test_dreamer import SMALL
from wm.actions import ActionSpace
from wm.artifacts import durable
from wm.dreamer.replay_store import (
    disk_bound,
    open_replay,
    replay_buffer,
    replay_bytes,
    replay_recipe,
    require_collected,
    require_memory,
)
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.replay import ReplayWriter
from wm.episodes.writer import create
from wm.errors import MemoryProblem, RecipeMismatch, UsageProblem

SPACE = ActionSpace(count=3)
ENV = EnvConfig(TINY, 32, gray=True)


def test_memory_and_disk_of_a_replay_stay_within_their_estimates_even_for_noise(tmp_path: Path) -> None:
    random, buffer = np.random.default_rng(0), replay_buffer(2, 64, SMALL, SPACE)
    assert buffer.nbytes <= replay_bytes(64, SMALL)
    recipe = replay_recipe(ENV, SPACE, 0)
    open_replay(tmp_path / "r.zarr", recipe, "a" * 64, resumed=False, log=str)
    writer = ReplayWriter(tmp_path / "r.zarr", recipe, buffer, 16, 64 + 16)
    for number in range(200):
        for env_index in range(2):
            frame = random.integers(0, 256, (32, 32, 1), np.uint8)
            if number % 10:
                writer.add_step(env_index, frame, 1, 0.5, False)
            else:
                writer.start_episode(env_index, frame, number)
        if writer.part_is_full:
            writer.commit()
            writer.evict()
    frames = sum(path.stat().st_size for path in tmp_path.rglob("frames/*"))
    assert 0 < frames < disk_bound(64, 16, SMALL)


def test_a_replay_that_does_not_fit_into_memory_is_refused() -> None:
    require_memory(64, SMALL)
    with pytest.raises(MemoryProblem, match=r"--capacity is 2000000000, which takes .* free; give a smaller one"):
        require_memory(2_000_000_000, SMALL)


def test_a_replay_is_kept_by_its_own_training_while_it_is_resumed(tmp_path: Path) -> None:
    path, recipe, logged = tmp_path / "r.zarr", replay_recipe(ENV, SPACE, 0), list[str]()
    open_replay(path, recipe, "a" * 64, False, logged.append)
    (path / "mark").touch()
    open_replay(path, recipe, "a" * 64, True, logged.append)
    assert (path / "mark").exists()
    assert not logged
    open_replay(path, recipe, "a" * 64, False, logged.append)
    assert not (path / "mark").exists()
    assert logged == [f"{path}: the replay is begun anew"]


def test_a_replay_of_an_earlier_version_is_its_training_s_that_is_resumed_and_is_archived_by_another(
    tmp_path: Path,
) -> None:
    path, recipe, logged = tmp_path / "r.zarr", replay_recipe(ENV, SPACE, 0), list[str]()
    for number, resumed in enumerate((True, False)):
        durable.remove(path)
        create(path, recipe)
        (path / "mark").touch()
        open_replay(path, recipe, "a" * 64, resumed, logged.append)
        assert len(logged) == number
    (archived,) = (tmp_path / "archive").glob("r-*.zarr/mark")
    assert str(archived.parent) in logged[0]
    assert not (path / "mark").exists()


def test_a_folder_that_is_not_a_replay_is_never_removed(tmp_path: Path) -> None:
    write_dataset(tmp_path / "collected.zarr", 1)
    durable.make_folder(tmp_path / "folder")
    for name in ("collected.zarr", "folder"):
        with pytest.raises(UsageProblem, match="is not a replay; move it away"):
            open_replay(tmp_path / name, replay_recipe(ENV, SPACE, 0), "a" * 64, False, str)
    assert Dataset.open(tmp_path / "collected.zarr").episodes == 1


def test_collected_frames_of_another_shape_are_refused(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "d.zarr", 1)
    with pytest.raises(RecipeMismatch, match=r"frames of \(32, 32, 3\) .* expected \(32, 32, 1\) and 3"):
        require_collected([Dataset.open(path)], ENV, SMALL, SPACE)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "Pong"}, f"has episodes of Pong but --env is {TINY}"),
        ({"observation": "foreground"}, "has observation foreground but this Dreamer takes rgb; give --set"),
        ({"mask": "12-88"}, "has mask 12-88 but this Dreamer takes none; give --set mask=12-88, or collect"),
        ({"action_repeat": 4}, "has action_repeat 4 but this Dreamer takes 1; collect with `--set action_repeat=1`"),
    ],
)
def test_collected_episodes_of_another_environment_are_refused(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    create(tmp_path / "d.zarr", {**RECIPE, "env": {**ENV.as_json(), **changes}})
    with pytest.raises(RecipeMismatch, match=reason):
        require_collected([Dataset.open(tmp_path / "d.zarr")], ENV, SMALL, SPACE)
