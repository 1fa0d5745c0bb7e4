"""Parts that one process writes and another commits."""

from pathlib import Path

import pytest

from tests.conftest import RECIPE, make_episode
from tests.episodes.test_mirror import local_files, mounted, whole_episodes
from tests.episodes.test_writer import bytes_of
from tests.object_store import Server
from wm.artifacts import durable, manifest
from wm.episodes import schema
from wm.episodes.archive import claim, find_dataset
from wm.episodes.dataset import Dataset
from wm.episodes.leftovers import find
from wm.episodes.parts import STAGING
from wm.episodes.schema import BLOCK_EPISODES, PackedEpisode
from wm.episodes.staged_parts import Place, open_place, write_block
from wm.episodes.writer import Writer, create
from wm.errors import BadData, DiskProblem, MissingInput, NotPermitted

EPISODES = BLOCK_EPISODES + 5


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 600)


def play(index: int) -> PackedEpisode:
    return make_episode(index, terminated=index % 2 == 0).pack()


def collect(path: Path, upto: int) -> None:
    with Writer(find_dataset(path, RECIPE) or create(path, RECIPE)) as writer:
        for index in writer.dataset.absent(upto):
            writer.add(play(index))


def test_the_parts_of_a_block_are_those_of_one_writer(tmp_path: Path) -> None:
    collect(tmp_path / "one.zarr", EPISODES)
    path = tmp_path / "two.zarr"
    with Writer(create(path, RECIPE)) as writer, open_place(path) as place:
        late = write_block(play, place, RECIPE, BLOCK_EPISODES, EPISODES)
        for part in write_block(play, place, RECIPE, 0, BLOCK_EPISODES):
            assert Dataset.open(path).collected == part.episodes[0], "what is staged is not there"
            writer.take(part)
        for part in late:
            writer.take(part)
        assert writer.dataset.episodes == EPISODES
    assert bytes_of(path) == bytes_of(tmp_path / "one.zarr")
    assert len(Dataset.open(path).parts) == 4
    assert not list((path / STAGING).iterdir())
    for folder in (path, tmp_path / "one.zarr"):
        collect(folder, EPISODES + 3)  # after the short part
    assert bytes_of(path) == bytes_of(tmp_path / "one.zarr")


def test_what_a_killed_writer_left_is_an_orphan_and_the_next_one_sweeps_it(tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    Writer(create(path, RECIPE))
    opened = open_place(path)
    write_block(play, opened.__enter__(), RECIPE, 0, 3)
    assert Dataset.open(path).episodes == 0
    assert [(left.path.name, left.kind) for left in find([tmp_path])] == [(STAGING, "orphans")]
    collect(path, 2)
    assert not find([tmp_path])


def test_a_part_that_did_not_arrive_whole_is_not_committed(tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    with Writer(create(path, RECIPE)) as writer, open_place(path) as place:
        for name in ("frames/c.0.0.0.0", manifest.NAME):
            (part,) = write_block(play, place, RECIPE, 0, 3)
            (part.folder / name).write_bytes((part.folder / name).read_bytes()[:-1])
            with pytest.raises(BadData, match=r"missing or has another size|is not what its worker wrote"):
                writer.take(part)
        (part,) = write_block(play, place, RECIPE, 0, 3)
        (part.folder / "zarr.json").unlink()
        with pytest.raises(BadData, match="is missing"):
            writer.take(part)
        (other,) = write_block(play, place, RECIPE, 64, 66)
        with pytest.raises(ValueError, match="part-000064-000066 does not begin with the next episode, 0"):
            writer.take(other)
    assert Dataset.open(path).episodes == 0


def test_a_part_is_measured_against_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "d.zarr", list[int]()
    with Writer(create(path, RECIPE), asked.append) as writer, open_place(path) as place:
        (part,) = write_block(play, place, RECIPE, 0, 3)
        folder = writer.take(part)
        assert asked == [durable.folder_size(folder)]
        monkeypatch.setattr("wm.artifacts.disk.DiskBudget.available", lambda *_: 100)
        with pytest.raises(DiskProblem, match=r"a part of .* does not fit .*, where 100 B may be used"):
            write_block(play, place, RECIPE, 64, 67)


def test_a_process_that_does_not_see_the_folder_says_so_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    Writer(create(path, RECIPE))
    with open_place(path) as place:
        assert place.problem() == ""
    assert "does not see" in place.problem()
    with pytest.raises(MissingInput, match=r"does not see .*, where workers write; mount it under that name"):
        write_block(play, place, RECIPE, 0, 3)
    assert not list((path / STAGING).iterdir())


@pytest.mark.extra("s3")
def test_in_a_store_the_parts_of_a_block_are_those_of_one_writer(s3: Server, tmp_path: Path) -> None:
    address = f"s3://{s3.bucket()}/data/d"
    path = mounted(address, tmp_path / "a").folder
    with (
        claim(path, RECIPE, False, lambda text: None) as claimed,
        claimed.open_writer(lambda size: None) as writer,
        open_place(path) as place,
    ):
        assert place.problem() == ""
        for first, last in ((0, BLOCK_EPISODES), (BLOCK_EPISODES, EPISODES)):
            parts = write_block(play, place, RECIPE, first, last)
            assert whole_episodes(address, tmp_path / "b") == first, "a part exists from its manifest on"
            assert len(write_block(play, place, RECIPE, first, last)) == len(parts), "as when a task is asked again"
            for part in parts:
                writer.take(part)
        assert writer.dataset.episodes == EPISODES
    assert s3.objects(address) == local_files(tmp_path, EPISODES)
    assert not list(path.rglob("c.*")), "no array came here"


@pytest.mark.extra("s3")
def test_in_a_store_a_part_that_did_not_arrive_whole_is_not_committed(s3: Server, tmp_path: Path) -> None:
    address = f"s3://{s3.bucket()}/data/d"
    path = mounted(address, tmp_path / "a").folder
    with (
        claim(path, RECIPE, False, lambda text: None) as claimed,
        claimed.open_writer(lambda size: None) as writer,
        open_place(path) as place,
    ):
        (part,) = write_block(play, place, RECIPE, 0, 3)
        s3.put(f"{address}/part-000000-000003/frames/c.0.0.0.0", None)
        with pytest.raises(BadData, match=r"frames/c\.0\.0\.0\.0 is not what was put there"):
            writer.take(part)
    assert whole_episodes(address, tmp_path / "b") == 0


@pytest.mark.extra("s3")
@pytest.mark.parametrize("how", ["another store", "no dataset", "reads only"])
def test_a_process_that_sees_another_store_or_may_not_write_says_so(how: str, s3: Server, tmp_path: Path) -> None:
    address = f"s3://{s3.bucket()}/data/d"
    path = mounted(address, tmp_path / "a").folder
    with (
        claim(path, RECIPE, False, lambda text: None) as claimed,
        claimed.open_writer(lambda size: None),
        open_place(path) as place,
    ):
        assert place.problem() == ""
        if how == "reads only":
            s3.spoil = lambda method, key: "forbid" if method == "PUT" else ""
        else:
            s3.put(f"{address}/manifest.json", b"{}" if how == "another store" else None)
        expected = "is not allowed" if how == "reads only" else "does not see the dataset s3://"
        assert expected in place.problem()
    assert not [name for name in s3.objects(address) if name.endswith(".probe")]


@pytest.mark.extra("s3")
def test_a_process_without_credentials_says_so(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(Path("/nowhere"), f"s3://{s3.bucket()}/data/d")
    s3.spoil = lambda method, key: "forbid"
    assert "is not allowed with these credentials" in place.problem()
    with pytest.raises(NotPermitted):
        write_block(play, place, RECIPE, 0, 3)
