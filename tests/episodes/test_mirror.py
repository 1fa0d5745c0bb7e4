"""Datasets in an object store: the same bytes as on a disk, whatever fails and whoever writes beside us."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from tests.conftest import RECIPE, make_episode, write_dataset
from tests.object_store import Server
from wm.artifacts import manifest
from wm.artifacts.object_store import ObjectStore
from wm.episodes import mirror, schema, stored
from wm.episodes.archive import claim, read_provenance
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameBatches
from wm.episodes.mirror import Mirror
from wm.errors import BadData, DiskProblem, Locked, RecipeMismatch, Unreachable, UsageProblem

pytestmark = pytest.mark.extra("s3")
OTHER = {**RECIPE, "seed": 1}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)  # three episodes


@pytest.fixture
def address(s3: Server) -> str:
    return f"s3://{s3.bucket()}/data/d"


def mounted(address: str, folder: Path) -> Mirror:
    """As a command mounts a dataset: `folder` stands for the machine."""
    mirrored = mirror.mount(address, folder)
    mirrored.refresh()
    return mirrored


def collect(address: str, folder: Path, episodes: int, recipe: dict[str, object] = RECIPE) -> None:
    path = mounted(address, folder).folder
    with claim(path, recipe, False, lambda text: None) as claimed:
        missing = claimed.missing(episodes)
        if missing:
            with claimed.open_writer(lambda size: None) as writer:
                for index in missing:
                    writer.add(make_episode(index, terminated=index % 2 == 0).pack())


def read_frames(path: Path) -> None:
    dataset = Dataset.open(path)
    for part in dataset.parts:
        dataset.shard(part, "frames").all()


def local_files(folder: Path, episodes: int) -> dict[str, bytes]:
    """The files of the same dataset, written to a disk."""
    path = write_dataset(folder / "local.zarr", episodes)
    files = (file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def whole_episodes(address: str, folder: Path) -> int:
    """How many episodes somebody else reads, from an empty folder, every byte checked."""
    shutil.rmtree(folder, ignore_errors=True)
    mirrored = mounted(address, folder)
    if not mirrored.folder.exists():
        return 0
    assert not [result for result in stored.check(mirrored) if result.problem]
    return Dataset.open(mirrored.folder).episodes


def test_the_store_has_the_files_of_a_local_dataset(address: str, s3: Server, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 2)
    assert "part-000000-000002/manifest.json" in s3.objects(address)
    collect(address, tmp_path / "a", 7)
    assert s3.objects(address) == local_files(tmp_path, 7), "and the shorter part is gone"


def test_another_machine_continues(address: str, s3: Server, tmp_path: Path) -> None:
    for number, episodes in enumerate((1, 4, 5, 7)):
        collect(address, tmp_path / str(number), episodes)
    assert s3.objects(address) == local_files(tmp_path, 7)


def test_a_manifest_is_put_after_everything_it_lists(address: str, s3: Server, tmp_path: Path) -> None:
    s3.requests.clear()
    collect(address, tmp_path / "a", 4)
    puts = [key.removeprefix("data/d/") for method, key in s3.requests if method == "PUT"]
    for folder in ("", "part-000000-000003/", "part-000003-000004/"):
        below = [key for key in puts if key.startswith(folder) and (folder or "/" not in key)]
        assert below[-1] == f"{folder}{manifest.NAME}"
        assert len(below) == (10 if folder else 2)


@pytest.mark.parametrize("how", ["refuse", "lose"])
def test_each_put_fails_in_turn_and_the_same_command_continues(
    how: str, address: str, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For good: the process cannot put anything from then on, as if it were killed there."""
    monkeypatch.setattr("wm.artifacts.object_store.RETRIES", 0)
    whole = local_files(tmp_path, 4)
    counts = []
    for at in range(1, 40):
        here, left = f"{address}{at}", [""] * (at - 1)  # of as many PUTs
        s3.spoil = lambda method, key, left=left: "" if method != "PUT" else left.pop() if left else how  # type: ignore[misc]
        try:
            collect(here, tmp_path / "a", 4)
        except Unreachable:
            s3.spoil = lambda method, key: ""
            counts.append(whole_episodes(here, tmp_path / "b"))
            collect(here, tmp_path / ("a" if at % 2 else "c"), 4)  # also from another machine
        else:
            s3.spoil = lambda method, key: ""
            break
        assert s3.objects(here) == whole, f"PUT {at}"
    assert at == 2 + 10 + 10 + 1, "a root, two parts"
    assert counts == sorted(counts)
    assert set(counts) == ({0, 3} if how == "refuse" else {0, 3, 4})


def test_of_two_writers_one_wins_and_the_other_is_told(address: str, s3: Server, tmp_path: Path) -> None:
    """Both have looked before either puts anything."""
    barrier, said = threading.Barrier(2), []

    def write(name: str, recipe: dict[str, object]) -> None:
        path = mounted(address, tmp_path / name).folder
        with claim(path, recipe, False, lambda text: None) as claimed:
            barrier.wait()
            try:
                with claimed.open_writer(lambda size: None) as writer:
                    for index in range(4):
                        writer.add(make_episode(index, terminated=index % 2 == 0).pack())
            except Locked as error:
                said.append(str(error))

    threads = [threading.Thread(target=write, args=pair) for pair in (("a", RECIPE), ("b", RECIPE))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 1
    assert "is being written by another process" in said[0]
    assert s3.objects(address) == local_files(tmp_path, 4)


def test_writers_of_different_episodes_never_mix(address: str, s3: Server, tmp_path: Path) -> None:
    """The second one looked before the first put its root, and then its part; the environment does not repeat."""
    path = mounted(address, tmp_path / "b").folder
    with claim(path, OTHER, False, lambda text: None) as claimed:
        collect(address, tmp_path / "a", 2)
        before = s3.objects(address)
        with pytest.raises(Locked, match="has created it first"):
            claimed.open_writer(lambda size: None)
        assert s3.objects(address) == before
    collect(address, tmp_path / "a", 3)
    path = mounted(address, tmp_path / "c").folder
    with claim(path, RECIPE, False, lambda text: None) as claimed:
        writer = claimed.open_writer(lambda size: None)
        collect(address, tmp_path / "a", 6)
        before = s3.objects(address)
        for index in (3, 4):
            writer.add(replace(make_episode(index + 10), index=index).pack())
        with pytest.raises(Locked, match="has put part-000003-000006 first"):
            writer.add(replace(make_episode(15), index=5).pack())
    assert s3.objects(address) == before


def test_another_recipe_and_another_folder_are_refused(address: str, s3: Server, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 2)
    before = s3.objects(address)
    with pytest.raises(RecipeMismatch, match=r"seed .* object store has no archive"):
        collect(address, tmp_path / "a", 2, OTHER)
    with pytest.raises(UsageProblem, match=r"holds 'd/manifest\.json' and is no dataset"):
        collect(address.removesuffix("/d"), tmp_path / "a", 2)
    with pytest.raises(UsageProblem, match="is a whole bucket"):
        mirror.mount(address.removesuffix("/data/d"), tmp_path)
    assert s3.objects(address) == before


def test_processes_of_one_machine_refresh_one_mirror(address: str, s3: Server, tmp_path: Path) -> None:
    """As those of torchrun, or a training beside `wm info`, where nothing of the dataset is here yet."""
    collect(address, tmp_path / "a", 30)

    def slow(method: str, key: str) -> str:
        time.sleep(0.01)
        return ""

    s3.spoil = slow
    mirrors = [mirror.mount(address, tmp_path / "b") for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(Mirror.refresh, mirrors))
    assert Dataset.open(mirrors[0].folder).episodes == 30


def test_a_reader_on_the_machine_of_a_writer_does_not_end_it(address: str, s3: Server, tmp_path: Path) -> None:
    """It refreshes the same mirror where the new part is in the store, and not yet here."""
    path, readers = mounted(address, tmp_path / "a").folder, list[threading.Thread]()
    reader = Mirror(ObjectStore.open(address), path)
    put_new = ObjectStore.put_new

    def read(store: ObjectStore, name: str, data: bytes, replaces: str = "") -> None:
        put_new(store, name, data, replaces)
        if name.endswith(manifest.NAME):
            readers.append(threading.Thread(target=reader.refresh))
            readers[-1].start()
            readers[-1].join(0.3)

    with mock.patch.object(ObjectStore, "put_new", read):
        collect(address, tmp_path / "a", 7)
    for thread in readers:
        thread.join()
    assert len(readers) == 4
    assert whole_episodes(address, tmp_path / "b") == 7


def test_a_part_of_which_something_is_removed_meanwhile_is_not_committed(
    address: str, s3: Server, tmp_path: Path
) -> None:
    """As by `wm clean --unfinished` on another machine."""
    put_files = Mirror._put_files

    def spoilt(mirrored: Mirror, below: str, files: dict[str, bytes]) -> None:
        put_files(mirrored, below, files)
        if below:
            s3.put(f"{address}/{below}rewards/c.0", None)

    with mock.patch.object(Mirror, "_put_files", spoilt), pytest.raises(BadData, match="is not what was put there"):
        collect(address, tmp_path / "a", 3)
    assert whole_episodes(address, tmp_path / "b") == 0
    collect(address, tmp_path / "a", 3)
    assert whole_episodes(address, tmp_path / "b") == 3


def test_what_a_process_of_this_machine_writes_is_not_cleaned(address: str, s3: Server, tmp_path: Path) -> None:
    path = mounted(address, tmp_path / "a").folder
    with claim(path, RECIPE, False, lambda text: None):
        s3.put(f"{address}/part-000000-000003/frames/c.0", b"begun")
        (mirrored,) = filter(None, [mirror.of(path)])
        found = stored.find_leftovers(mirrored, 0.0)
        assert stored.remove(found) == ([], found, [])
    assert stored.remove(found) == (found, [], [])
    assert "part-000000-000003/frames/c.0" not in s3.objects(address)


def test_provenance_has_a_line_of_every_collection(address: str, s3: Server, tmp_path: Path) -> None:
    for number in range(2):
        mirrored = mounted(address, tmp_path / str(number))
        collect(address, tmp_path / str(number), number + 1)
        with claim(mirrored.folder, RECIPE, False, lambda text: None) as claimed:
            claimed.record({"episodes": number + 1, "command": "wm collect"})
    path = mounted(address, tmp_path / "c").folder
    assert [line["episodes"] for line in read_provenance(path)] == [1, 2]


def test_opening_reads_tables_and_an_array_comes_when_it_is_read(address: str, s3: Server, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 4)
    s3.requests.clear()
    dataset = Dataset.open(mounted(address, tmp_path / "b").folder)
    assert (dataset.episodes, dataset.rows) == (4, 80)
    assert not [key for method, key in s3.requests if "/frames/" in key and method == "GET"]
    s3.requests.clear()
    assert Dataset.open(mounted(address, tmp_path / "b").folder).episodes == 4
    assert len(s3.requests) == 1, "nothing is new"
    written = np.concatenate([make_episode(index).rewards for index in range(4)])
    assert np.array_equal(dataset.column("rewards"), written)
    read = {key.split("/")[3] for method, key in s3.requests if method == "GET" and key.count("/") == 4}
    assert read == {"rewards"}


def test_batches_are_those_of_a_local_dataset_through_a_cache_that_is_too_small(
    address: str, s3: Server, tmp_path: Path
) -> None:
    collect(address, tmp_path / "a", 12)
    local_files(tmp_path, 12)
    mirrored = mounted(address, tmp_path / "b")
    datasets = [Dataset.open(path) for path in (tmp_path / "local.zarr", mirrored.folder)]
    part = mirrored.part_bytes(datasets[1].parts[0].folder)
    mirrored.limit = 2 * part
    mask = np.ones(12, np.bool_)
    sources = [FrameBatches(dataset, mask, 16, seed=0, ram=0) for dataset in datasets]
    s3.requests.clear()
    for step in range(40):  # two epochs and more
        ours, theirs = (source.at(step) for source in sources)
        assert np.array_equal(ours, theirs)
        held = sum(file.stat().st_size for file in mirrored.folder.rglob("c.*"))
        assert held <= 2 * part
    fetched = [key for method, key in s3.requests if key.endswith("c.0.0.0.0")]
    assert len(fetched) > 4, "evicted parts came again"


def test_a_cache_that_cannot_hold_a_part_is_one_sentence(address: str, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 3)
    mirrored = mounted(address, tmp_path / "b")
    mirrored.limit = 100
    with pytest.raises(DiskProblem, match="100 B may be used; free some space, or raise --disk-budget"):
        Dataset.open(mirrored.folder).column("rewards")


@pytest.mark.parametrize(
    "name", ["part-000000-000003/frames/c.0.0.0.0", "part-000000-000003/zarr.json", "part-000000-000003/manifest.json"]
)
@pytest.mark.parametrize("damage", ["flip", "cut", "lost"])
def test_damage_in_the_store_is_never_read(name: str, damage: str, address: str, s3: Server, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 4)
    data = s3.objects(address)[name]
    changed = {"flip": data[:50] + bytes([data[50] ^ 1]) + data[51:], "cut": data[:-1], "lost": None}[damage]
    s3.put(f"{address}/{name}", changed)
    try:
        read_frames(mounted(address, tmp_path / "b").folder)
        problem = ""
    except BadData as error:
        problem = str(error)
    assert "\n" not in problem
    assert problem
    mirrored = mirror.mount(address, tmp_path / "c")
    (result,) = [result for result in stored.check(mirrored) if result.problem]
    assert "\n" not in result.problem


def test_a_damaged_part_is_played_again_once_its_manifest_is_removed(address: str, s3: Server, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 7)
    whole = s3.objects(address)
    s3.put(f"{address}/part-000003-000006/frames/c.0.0.0.0", b"damaged")
    s3.put(f"{address}/part-000003-000006/manifest.json", None)
    with pytest.raises(BadData, match="has lost episodes 3 to 5"):
        Dataset.open(mounted(address, tmp_path / "b").folder)
    with pytest.raises(Locked, match=r"wm clean s3://.* --unfinished"):
        collect(address, tmp_path / "a", 7)
    mirrored = mounted(address, tmp_path / "a")
    found = stored.find_leftovers(mirrored, now=0.0)
    assert [(leftover.path.name, leftover.kind) for leftover in found] == [("part-000003-000006", "unfinished")]
    assert stored.find_leftovers(mirrored, now=1e12)[0].kind == "orphans"
    assert stored.remove(found) == (found, [], [])
    collect(address, tmp_path / "a", 7)
    assert s3.objects(address) == whole


def test_a_dataset_that_was_replaced_is_read_anew(address: str, s3: Server, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 4)
    old = Dataset.open(mounted(address, tmp_path / "b").folder)
    old.column("rewards")
    for name in s3.objects(address):
        s3.put(f"{address}/{name}", None)
    assert not mounted(address, tmp_path / "c").folder.exists()
    collect(address, tmp_path / "c", 2, OTHER)
    new = Dataset.open(mounted(address, tmp_path / "b").folder)
    assert (new.recipe, new.episodes) == (OTHER, 2)
    assert not mounted(address, tmp_path / "a").folder.joinpath("part-000000-000003").exists()


def test_a_part_that_is_replaced_while_it_is_read_is_one_sentence(address: str, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 2)
    dataset = Dataset.open(mounted(address, tmp_path / "b").folder)
    collect(address, tmp_path / "a", 4)
    with pytest.raises(BadData, match="has changed, so run the command again"):
        dataset.column("rewards")
    assert Dataset.open(mounted(address, tmp_path / "b").folder).episodes == 4


def test_what_is_evicted_by_others_or_removed_by_hand_comes_again(address: str, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 4)
    dataset = Dataset.open(mounted(address, tmp_path / "b").folder)
    shard = dataset.shard(dataset.parts[0], "frames")
    frames = shard.all()
    shutil.rmtree(shard.folder)
    assert np.array_equal(shard.chunk(0), frames)
    shutil.rmtree(tmp_path / "b")
    assert np.array_equal(
        Dataset.open(mounted(address, tmp_path / "b").folder).column("rewards")[:20], make_episode(0).rewards
    )


@pytest.mark.parametrize("how", ["cut", "flip", "slow"])
def test_spoilt_answers_are_asked_for_again(
    how: str, address: str, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(address, tmp_path / "a", 3)
    if how == "slow":
        monkeypatch.setattr("wm.artifacts.object_store.TIMEOUT", "1s")
    expected = Dataset.open(mounted(address, tmp_path / "a").folder).column("rewards")
    asked: set[str] = set()

    def spoil(method: str, key: str) -> str:
        first = method == "GET" and key.endswith("rewards/c.0") and key not in asked
        asked.add(key)
        return how if first else ""

    s3.spoil = spoil
    assert np.array_equal(Dataset.open(mounted(address, tmp_path / "b").folder).column("rewards"), expected)
    assert [key for key in asked if key.endswith("rewards/c.0")]


def test_a_strangers_manifest_opens_nothing_else(address: str, s3: Server, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 3)
    name = f"{address}/part-000000-000003/manifest.json"
    table = manifest.parse_sealed(s3.objects(address)["part-000000-000003/manifest.json"], "", manifest.SCHEMA, "")
    for listed, words in (
        ({"frames/../../../x": {"size": 1, "sha256": ""}}, "expected plain names"),
        ({"frames/c.0.0.0.0": {"size": 1 << 50, "sha256": ""}}, "lists files of .* GB; expected at most"),
    ):
        s3.put(name, manifest.sealed({**table, "files": {**table["files"], **listed}}))
        with pytest.raises(BadData, match=words):
            read_frames(mounted(address, tmp_path / "b").folder)
    s3.put(name, b"{" * (1 << 21))
    with pytest.raises(BadData, match="expected at most 1048576 bytes"):
        mounted(address, tmp_path / "b")


def test_datasets_are_found_below_an_address(address: str, tmp_path: Path) -> None:
    collect(address, tmp_path / "a", 1)
    collect(f"{address}2", tmp_path / "a", 1)
    bucket = "/".join(address.split("/")[:3])
    assert stored.find_datasets(ObjectStore.open(bucket)) == [address, f"{address}2"]
    assert stored.find_datasets(ObjectStore.open(address)) == [address]
