"""Blocks of episodes that workers write, with real processes."""

from functools import partial
from pathlib import Path

import pytest

from tests.conftest import TINY
from tests.episodes.test_mirror import mounted
from tests.episodes.test_writer import bytes_of
from tests.object_store import Server
from tests.rollouts.clusters import local_cluster, play_badly
from wm.artifacts.disk import DiskBudget
from wm.envs.registry import EnvConfig
from wm.episodes.archive import claim
from wm.episodes.committed_parts import Part
from wm.episodes.dataset import Dataset
from wm.episodes.parts import STAGING
from wm.episodes.staged_parts import Place, StagedPart
from wm.errors import Stopped, WorkerFailed
from wm.rollouts.collecting import ONE_WRITER, blocks_pay, collect_episodes
from wm.rollouts.collection import describe
from wm.runtime import Runtime

EPISODES = 140  # 64 by this process, one block, and the beginning of another


@pytest.fixture(scope="module")
def written_here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the dataset when one process plays and writes it."""
    path = tmp_path_factory.mktemp("here") / "d.zarr"
    collect(path, Runtime(), ONE_WRITER)
    return bytes_of(path)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first episodes of the parts that workers have written."""
    firsts: list[int] = []
    commit = StagedPart.commit

    def note(staged: StagedPart, root: Path) -> Part:
        firsts.append(staged.episodes[0])
        return commit(staged, root)

    monkeypatch.setattr(StagedPart, "commit", note)
    return firsts


def collect(path: Path, runtime: Runtime, one_writer: int = 1, episodes: int = EPISODES) -> Dataset:
    """As `wm collect`."""
    collection, recipe = describe(EnvConfig(TINY, size=32), "random", 0, 0)
    with claim(path, recipe, False, print) as claimed:
        return collect_episodes(collection, claimed, episodes, DiskBudget(path), runtime, one_writer)


def staged(path: Path) -> list[Path]:
    return list((path / STAGING).iterdir())


def test_workers_write_the_parts_that_one_process_writes_unless_it_keeps_up(
    written_here: dict[str, bytes], taken: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "d.zarr"
    collect(path, Runtime(workers=2), ONE_WRITER, episodes=10)
    assert not taken
    assert collect(path, Runtime(workers=2)).episodes == EPISODES
    assert bytes_of(path) == written_here
    assert taken == [64, 128]
    assert not staged(path)


@pytest.mark.parametrize(
    ("missing", "workers", "pay"),
    [
        (100_000, 49, False),
        (100_000, 64, True),
        (100_000, 1000, True),
        (10_000, 1000, True),
        (1_000, 1000, False),  # blocks would leave most workers without one
        (3_000, 64, False),
    ],
)
def test_blocks_pay_where_many_workers_play_many_episodes(missing: int, workers: int, pay: bool) -> None:
    assert blocks_pay(missing, missing - 64, workers, ONE_WRITER) is pay


class _Elsewhere:
    """A place that workers do not see."""

    def __enter__(self) -> Place:
        return Place(Path("/nowhere"))

    def __exit__(self, *_: object) -> None:
        pass


def test_workers_that_do_not_see_the_folder_send_their_episodes(
    written_here: dict[str, bytes], taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("wm.rollouts.collecting.open_place", lambda path: _Elsewhere())
    collect(tmp_path / "d.zarr", Runtime(workers=2, log=said.append))
    assert bytes_of(tmp_path / "d.zarr") == written_here
    assert not taken
    (line,) = said
    assert "2 of 2 workers cannot write" in line
    assert "does not see /nowhere" in line
    assert line.endswith("so this process writes all episodes")


def test_a_worker_that_dies_in_a_block_costs_its_repetition(
    written_here: dict[str, bytes], taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, marker = tmp_path / "d.zarr", tmp_path / "died"
    monkeypatch.setattr("wm.rollouts.collecting.play_episode", partial(play_badly, 100, marker))
    collect(path, Runtime(workers=2))
    assert marker.exists()
    assert taken == [64, 128]
    assert bytes_of(path) == written_here
    assert not staged(path)


def test_an_episode_that_cannot_be_played_is_named_and_those_before_it_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.zarr"
    monkeypatch.setattr("wm.rollouts.collecting.play_episode", partial(play_badly, 100, None))
    with pytest.raises(WorkerFailed, match=r"episode 100 of .* \(seed \d+\) failed 3 times"):
        collect(path, Runtime(workers=2))
    assert Dataset.open(path).episodes == 100
    assert not staged(path)


def test_a_stop_keeps_the_blocks_before_it_and_leaves_no_staging(
    written_here: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, commit = tmp_path / "d.zarr", StagedPart.commit

    def stop(staged: StagedPart, root: Path) -> Part:
        if staged.episodes[0] == 128:
            raise Stopped(15)
        return commit(staged, root)

    monkeypatch.setattr(StagedPart, "commit", stop)
    with pytest.raises(Stopped):
        collect(path, Runtime(workers=2))
    assert Dataset.open(path).episodes == 128
    assert not staged(path)
    collect(path, Runtime(), ONE_WRITER)
    assert bytes_of(path) == written_here


@pytest.mark.extra("cluster")
def test_workers_of_a_cluster_write_blocks_and_one_is_killed(
    written_here: dict[str, bytes], taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Dask worker itself survives; a task's process is killed, and what it wrote is swept."""
    path, marker = tmp_path / "d.zarr", tmp_path / "died"
    monkeypatch.setattr("wm.rollouts.collecting.play_episode", partial(play_badly, 100, marker))
    with local_cluster(2) as cluster:
        collect(path, Runtime(executor=f"dask:{cluster.scheduler_address}"))
    assert marker.exists()
    assert taken == [64, 128]
    assert bytes_of(path) == written_here
    assert not staged(path)


@pytest.mark.extra("cluster")
@pytest.mark.extra("s3")
def test_workers_of_a_cluster_put_their_blocks_into_a_store(
    written_here: dict[str, bytes], taken: list[int], s3: Server, tmp_path: Path
) -> None:
    address = f"s3://{s3.bucket()}/data/d"
    path = mounted(address, tmp_path).folder
    with local_cluster(2) as cluster:
        collect(path, Runtime(executor=f"dask:{cluster.scheduler_address}"))
    assert taken == [64, 128]
    stored = {name: data for name, data in s3.objects(address).items() if not name.startswith("provenance")}
    assert stored == written_here
    assert not list(path.glob("part-000064-*/frames")), "its arrays did not come here"
