import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import RECIPE, make_episode, write_part
from wm.artifacts import durable
from wm.episodes import schema
from wm.episodes.archive import find_dataset
from wm.episodes.committed_parts import committed_parts
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.episodes.parts import STAGING
from wm.episodes.writer import Writer, create
from wm.errors import BadData, Stopped


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 70)


def collect(path: Path, upto: int) -> None:
    with Writer(find_dataset(path, RECIPE) or create(path, RECIPE)) as writer:
        for index in range(writer.next, upto):
            writer.add(make_episode(index, rows=12 + index % 5).pack())


def bytes_of(path: Path) -> dict[str, bytes]:
    files = (file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def test_an_interrupted_collection_gives_the_same_bytes_as_an_uninterrupted_one(tmp_path: Path) -> None:
    collect(tmp_path / "one.zarr", 23)
    for upto in (3, 4, 11, 23):
        collect(tmp_path / "two.zarr", upto)
    one, two = bytes_of(tmp_path / "one.zarr"), bytes_of(tmp_path / "two.zarr")
    assert one == two
    assert len([name for name in one if name.endswith("frames/zarr.json")]) > 3


def test_a_short_part_is_superseded_by_a_longer_one(tmp_path: Path) -> None:
    collect(tmp_path / "d.zarr", 2)
    assert [part.folder.name for part in Dataset.open(tmp_path / "d.zarr").parts] == ["part-000000-000002"]
    collect(tmp_path / "d.zarr", 4)
    assert sorted(p.name for p in (tmp_path / "d.zarr").glob("part-*")) == ["part-000000-000004"]


def test_a_dataset_that_is_open_can_be_read_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    collect(path, 2)
    opened, later = Dataset.open(path), Dataset.open(path)
    before, rewards, reader = opened.episodes_of(opened.parts[0]), opened.column("rewards"), FrameReader(opened)
    for upto in (4, 7):
        collect(path, upto)
        for number, episode in enumerate(later.episodes_of(later.parts[0])):
            assert (episode.frames == before[number].frames).all()
        assert (reader.read(0, opened.rows) == np.concatenate([episode.frames for episode in before])).all()
        assert (opened.column("rewards") == rewards).all()
    durable.remove(path / "part-000000-000005")
    with pytest.raises(BadData, match=r"part-000000-00000[25]"):
        FrameReader(later).read(0, 1)


def test_a_dataset_that_grows_while_it_is_opened_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.zarr"
    collect(path, 2)
    real = os.listdir

    def grow_after(folder: Path) -> list[str]:
        names = real(folder)
        monkeypatch.setattr(os, "listdir", real)
        collect(path, 4)
        return names

    monkeypatch.setattr(os, "listdir", grow_after)
    assert Dataset.open(path).episodes == 4


def test_the_folder_of_a_dataset_is_not_listed_for_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect(tmp_path / "d.zarr", 23)
    listed: list[str] = []
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: listed.append(pattern) or glob(path, pattern))  # type: ignore[func-returns-value]
    collect(tmp_path / "d.zarr", 40)
    assert len(Dataset.open(tmp_path / "d.zarr").parts) > 5
    assert [pattern for pattern in listed if pattern.startswith("part-")] == ["part-*-*"]


def test_nothing_is_lost_when_the_removal_of_the_short_part_was_killed(tmp_path: Path) -> None:
    collect(tmp_path / "d.zarr", 2)
    write_part(tmp_path / "d.zarr", [make_episode(k, rows=12 + k % 5) for k in range(4)])
    assert Dataset.open(tmp_path / "d.zarr").episodes == 4
    collect(tmp_path / "d.zarr", 5)
    assert sorted(p.name for p in (tmp_path / "d.zarr").glob("part-*")) == ["part-000000-000005"]


def test_staging_is_swept(tmp_path: Path) -> None:
    collect(tmp_path / "d.zarr", 1)
    (tmp_path / "d.zarr" / STAGING / "torso").mkdir(parents=True)
    collect(tmp_path / "d.zarr", 2)
    assert not list((tmp_path / "d.zarr" / STAGING).iterdir())


def test_lost_episodes_are_collected_again_with_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    collect(path, 23)
    whole = bytes_of(path)
    parts = Dataset.open(path).parts
    for lost in (parts[0], parts[2], parts[-1]):
        shutil.rmtree(lost.folder)
    for upto in (2, 9, 23):  # interrupted at any point, too
        dataset = find_dataset(path, RECIPE)
        assert dataset is not None
        with Writer(dataset) as writer:
            for index in writer.dataset.absent(upto):
                writer.add(make_episode(index, rows=12 + index % 5).pack())
        assert writer.dataset.parts == Dataset(path, RECIPE, committed_parts(path)).parts
    assert bytes_of(path) == whole


@pytest.mark.parametrize(("error", "kept"), [(Stopped(15), 3), (OSError(28, "full"), 0)])
def test_an_interruption_commits_the_finished_episodes_unless_the_disk_was_the_reason(
    tmp_path: Path, error: Exception, kept: int
) -> None:
    dataset = create(tmp_path / "d.zarr", RECIPE)
    with pytest.raises(type(error)), Writer(dataset) as writer:  # noqa: PT012
        for index in range(3):
            writer.add(make_episode(index).pack())
        raise error
    assert Dataset.open(tmp_path / "d.zarr").episodes == kept


def test_an_episode_whose_rewards_are_not_numbers_is_refused_and_those_before_it_are_kept(tmp_path: Path) -> None:
    dataset = create(tmp_path / "d.zarr", RECIPE)
    bad = make_episode(2)
    bad.rewards[7] = np.nan
    with Writer(dataset) as writer:
        for episode in (make_episode(0), make_episode(1)):
            writer.add(episode.pack())
        with pytest.raises(BadData, match=r"episode 2 \(seed 1002\) has the reward nan at step 7; expected finite"):
            writer.add(bad.pack())
    assert Dataset.open(tmp_path / "d.zarr").collected == 2
