from pathlib import Path

import pytest

from tests.conftest import RECIPE, make_episode, write_dataset
from wm.episodes.archive import Claim, claim, find_dataset, read_provenance
from wm.errors import Locked, RecipeMismatch, UsageProblem

OTHER = {**RECIPE, "seed": 1}


def claimed(path: Path, recipe: dict[str, object], keep_current: bool = False) -> tuple[Claim, list[str]]:
    """What a command sees of the dataset; the lock is released again."""
    log: list[str] = []
    with claim(path, recipe, keep_current, log.append) as claim_:
        return claim_, log


def write(path: Path, recipe: dict[str, object], episodes: int) -> list[str]:
    """Collect the missing episodes. Returns what was logged."""
    log: list[str] = []
    with (
        claim(path, recipe, keep_current=False, log=log.append) as claim_,
        claim_.open_writer(lambda size: None) as writer,
    ):
        for index in claim_.missing(episodes):
            writer.add(make_episode(index).pack())
    return log


def test_a_claim_lists_the_missing_episodes(tmp_path: Path) -> None:
    assert claimed(tmp_path / "d.zarr", RECIPE)[0].missing(3) == [0, 1, 2]
    write_dataset(tmp_path / "d.zarr", 2)
    assert claimed(tmp_path / "d.zarr", RECIPE)[0].missing(3) == [2]


def test_a_dataset_of_another_recipe_is_archived_when_the_first_episode_is_written_and_comes_back(
    tmp_path: Path,
) -> None:
    path = write_dataset(tmp_path / "d.zarr", 2)
    claim_, log = claimed(path, OTHER)
    assert (claim_.dataset, log) == (None, [])
    assert find_dataset(path, RECIPE) is not None
    assert "seed default -> 1" in write(path, OTHER, 1)[0]
    assert find_dataset(path, RECIPE) is None
    claim_, log = claimed(path, RECIPE)
    assert claim_.dataset is not None
    assert claim_.dataset.episodes == 2
    assert "restored from" in log[-1]
    claim_, _ = claimed(path, OTHER)
    assert claim_.dataset is not None


def test_a_link_to_a_dataset_is_not_archived_and_shares_its_lock(tmp_path: Path) -> None:
    path, link = write_dataset(tmp_path / "disk" / "d.zarr", 2), tmp_path / "d.zarr"
    link.symlink_to(path)
    with claim(path, RECIPE, False, print), pytest.raises(Locked):
        claimed(link, RECIPE)
    write(link, RECIPE, 3)
    dataset = claimed(path, RECIPE)[0].dataset
    assert dataset is not None
    assert dataset.episodes == 3
    with pytest.raises(UsageProblem, match=r"d\.zarr is a link and leads to no dataset of this recipe"):
        claimed(link, OTHER)
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageProblem, match=r"d\.zarr is a link and leads to no dataset of this recipe"):
        claimed(link, RECIPE)


def test_keep_current_refuses_another_recipe(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "d.zarr", 2)
    with pytest.raises(RecipeMismatch, match="seed default -> 1"):
        claimed(path, OTHER, keep_current=True)
    assert claimed(path, RECIPE, keep_current=True)[0].dataset is not None


def test_a_folder_that_is_no_dataset_is_refused_and_gets_no_lock_file(tmp_path: Path) -> None:
    (tmp_path / "d.zarr").mkdir()
    with pytest.raises(UsageProblem, match="is not a dataset"):
        claimed(tmp_path / "d.zarr", RECIPE)
    assert [entry.name for entry in tmp_path.iterdir()] == ["d.zarr"]


def test_one_process_claims_a_dataset_at_a_time(tmp_path: Path) -> None:
    with claim(tmp_path / "d.zarr", RECIPE, False, print), pytest.raises(Locked):
        claimed(tmp_path / "d.zarr", RECIPE)


def test_provenance_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "d.zarr", 1)
    assert read_provenance(path) == []
    claimed(path, RECIPE)[0].record({"episodes": 1})
    assert read_provenance(path) == [{"episodes": 1}]


def test_a_record_that_a_full_disk_or_a_kill_has_torn_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "d.zarr", 1)
    (path / "provenance.jsonl").write_bytes(b'{"episodes": 1}\n{"episo')
    claimed(path, RECIPE)[0].record({"episodes": 2})
    assert read_provenance(path) == [{"episodes": 1}, {"episodes": 2}]
