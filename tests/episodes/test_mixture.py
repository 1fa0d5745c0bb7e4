from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY, write_dataset
from tests.episodes.test_windows import make
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameBatches
from wm.episodes.latents import join
from wm.episodes.mixture import FrameMixture, WindowMixture, batch_sizes, fingerprints, open_datasets, split_batch
from wm.episodes.windows import Windows
from wm.errors import RecipeMismatch, UsageProblem


def test_a_batch_is_divided_by_weight_and_nobody_is_left_out() -> None:
    assert split_batch(32, [1]) == [32]
    assert split_batch(32, [0.3, 0.7]) == [10, 22]
    assert split_batch(8, [1, 1000]) == [1, 7]
    assert sum(split_batch(64, [1, 2, 3])) == 64
    with pytest.raises(UsageProblem, match="--batch is 1 but there are 2 datasets"):
        split_batch(1, [1, 1])


def test_a_mixture_weighs_the_datasets_and_without_one_their_rows_do(tmp_path: Path) -> None:
    datasets = open_datasets(TINY, [write_dataset(tmp_path / "a", 2), write_dataset(tmp_path / "b", 6)])
    assert batch_sizes(32, "0.25,0.75", datasets) == split_batch(32, [1, 3])
    rows = [dataset.rows for dataset in datasets]
    assert batch_sizes(32, "", datasets) == split_batch(32, rows)
    assert batch_sizes(32, "", datasets, later_weight=3.0) == split_batch(32, [rows[0], 3 * rows[1]])
    for mixture in ("0.5", "0.5,x", "0.5,0", "0.5,inf", "0.5,nan", "1e308,1e308"):
        with pytest.raises(UsageProblem, match=f"mixture is '{mixture}'; expected a number above 0 for each of the 2"):
            batch_sizes(32, mixture, datasets)


def test_only_the_first_dataset_is_limited_and_a_path_given_twice_counts_once(tmp_path: Path) -> None:
    one, two = write_dataset(tmp_path / "a", 4), write_dataset(tmp_path / "b", 4)
    datasets = open_datasets(TINY, [one, two, one, tmp_path / "b" / ".." / "a"], 3)
    assert [dataset.episodes for dataset in datasets] == [3, 4]
    assert [dataset.path for dataset in datasets] == [one, two]  # latents are found by the path that was given
    assert list(fingerprints(datasets)) == ["episodes", "episodes 2"]
    assert datasets[0].first(0).fingerprint == Dataset.open(one).fingerprint


def test_a_dataset_of_another_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RecipeMismatch, match=rf"a has episodes of {TINY} but --env is Pong; give .*, or --env {TINY}\.$"
    ):
        open_datasets("Pong", [write_dataset(tmp_path / "a", 2)])


def test_frames_come_from_every_dataset_by_its_part(tmp_path: Path) -> None:
    sources = []
    for name, part in (("a", 5), ("b", 3)):
        dataset = Dataset.open(write_dataset(tmp_path / name, 4 if name == "a" else 6))
        sources.append(FrameBatches(dataset, np.ones(dataset.episodes, bool), part, 0, 10**9))
    mixed = FrameMixture(sources)
    out = np.empty((8, 32, 32, 3), np.uint8)
    for step in (0, 3, 11):
        batch = mixed.at(step, out).copy()
        assert np.array_equal(batch[:5], sources[0].at(step))
        assert np.array_equal(batch[5:], sources[1].at(step))
    assert mixed.describe(0).count("batch 0") == 2


def test_windows_come_from_every_dataset_by_its_part() -> None:
    one, two = make(), make((7, 9))
    sources = [Windows(part, np.ones(len(part.ends), bool), 4, size, 0) for part, size in ((one, 3), (two, 2))]
    batch = WindowMixture(sources).at(7)
    assert batch.means.shape[:2] == (5, 5)
    assert np.array_equal(batch.means[3:], sources[1].at(7).means)


def test_joined_latents_keep_every_episode_apart() -> None:
    one, two = make(), make((7, 9))
    whole = join([one, two])
    assert whole.rows == one.rows + two.rows
    assert np.array_equal(whole.ends[len(one.ends) :], two.ends + one.rows)
    last = Windows(whole, np.ones(len(whole.ends), bool), 4, 1, 0).cut(np.array([[len(whole.ends) - 1, 0]]))
    alone = Windows(two, np.ones(len(two.ends), bool), 4, 1, 0).cut(np.array([[len(two.ends) - 1, 0]]))
    assert np.array_equal(last.means, alone.means)
