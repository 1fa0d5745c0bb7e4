from dataclasses import replace
from pathlib import Path

from tests.conftest import RECIPE, make_episode, write_dataset
from wm.artifacts import durable
from wm.episodes.size_estimate import SAMPLE_EPISODES, estimate_size, sample_suffices


def test_a_few_long_episodes_or_many_short_ones_are_enough() -> None:
    long, short = make_episode(0, rows=1000).pack(), make_episode(0, rows=20).pack()
    assert not sample_suffices([long] * 3, 50)
    assert sample_suffices([long] * 4, 50)
    assert not sample_suffices([short] * (SAMPLE_EPISODES - 1), 50)
    assert sample_suffices([short] * SAMPLE_EPISODES, 50)
    assert sample_suffices([short] * 2, 2)
    repeated = replace(make_episode(0, rows=250).pack(), env_steps=1000)  # as long to play as the long one
    assert sample_suffices([repeated] * 4, 50)


def test_the_size_is_estimated_from_a_sample_with_gaps(tmp_path: Path) -> None:
    sample = [make_episode(index).pack() for index in (3, 4, 90)]
    need = estimate_size(RECIPE, sample, 100)
    taken = durable.folder_size(write_dataset(tmp_path / "d.zarr", 100))
    assert 1.0 <= need.bytes / taken <= 1.5
    assert need.files >= len(list((tmp_path / "d.zarr").rglob("*")))
