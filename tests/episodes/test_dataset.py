import json
import os
import shutil
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from tests.conftest import RECIPE, make_episode, write_dataset
from wm.artifacts import durable, manifest
from wm.episodes import committed_parts, index, schema, shards
from wm.episodes.committed_parts import QUARANTINE
from wm.episodes.dataset import Dataset
from wm.episodes.index import NAME as INDEX
from wm.episodes.integrity import verify
from wm.episodes.writer import Writer, create
from wm.errors import BadData, MemoryProblem, MissingInput
from wm.report.inventory import describe


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    return write_dataset(tmp_path / "d.zarr", 9)


def test_columns_and_table_are_those_of_the_episodes(path: Path) -> None:
    dataset = Dataset.open(path)
    assert (dataset.episodes, dataset.rows, len(dataset.parts)) == (9, 180, 3)
    assert dataset.ends.tolist() == list(range(20, 181, 20))
    assert dataset.table["terminated"].tolist() == [True, False] * 4 + [True]
    for name in ("actions", "rewards", "labels"):
        expected = np.concatenate([getattr(make_episode(k), name) for k in range(9)])
        assert np.array_equal(dataset.column(name), expected), name
    assert np.allclose(dataset.table["return"], [make_episode(k).rewards.sum() for k in range(9)])


def test_a_prefix_has_the_same_fingerprint_however_long_the_dataset_is(path: Path) -> None:
    four = Dataset.open(path, 4)
    assert (four.rows, len(four.column("actions"))) == (80, 80)
    with Writer(four) as writer:
        writer.add(make_episode(9).pack())
    assert Dataset.open(path, 4).fingerprint == four.fingerprint
    assert Dataset.open(path).fingerprint != four.fingerprint


def test_the_index_is_only_a_cache(path: Path) -> None:
    before = Dataset.open(path).table["seed"].tolist()
    assert (path / INDEX).exists()
    whole = (path / INDEX).read_bytes()
    part = b"part-000000-000003"
    sizes = (b" 9", b" -9", b" x", b"", b" 1 1", b" " + b"9" * 5000)
    for garbage in (b"{garbage", b"\xff\n", b"\n", whole[:-1], *(part + size + b"\n" for size in sizes)):
        (path / INDEX).write_bytes(garbage)
        assert Dataset.open(path).table["seed"].tolist() == before
        assert (path / INDEX).read_bytes() == whole


def test_a_forged_index_is_rebuilt_from_the_parts(path: Path) -> None:
    dataset = Dataset.open(path)
    entries = index.read(path)
    forged = {name: data.replace(b"1001", b"7777").replace(b'"return"', b'"return" ') for name, data in entries.items()}
    assert forged != entries
    index.write(path, forged)
    assert index.read(path) == forged
    assert Dataset.open(path).table["seed"].tolist() == dataset.table["seed"].tolist()
    assert index.read(path) == entries


def test_an_index_is_used_where_it_agrees(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Dataset.open(path).table["seed"].tolist()
    monkeypatch.setattr(committed_parts, "_read_metadata", lambda folder: pytest.fail("the part was read"))
    assert Dataset.open(path).table["seed"].tolist() == before


def test_opening_looks_once_at_each_manifest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10,000 episodes there are 313, and each look is a system call."""
    Dataset.open(path)
    looks: list[str] = []
    for name in ("stat", "lstat"):
        original = getattr(os, name)

        def look(file: Any, *words: Any, original: Any = original, **options: Any) -> os.stat_result:
            looks.append(str(file))
            return original(file, *words, **options)

        monkeypatch.setattr(os, name, look)
    Dataset.open(path)
    manifests = [look for look in looks if look.endswith(manifest.NAME) and "part-" in look]
    assert sorted(manifests) == [str(part / manifest.NAME) for part in sorted(path.glob("part-*"))]


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("seed", "<script>alert(1)</script>", 'seed[0] is "<script>alert(1)</script>"; expected an integer'),
        ("seed", 1.5, "seed[0] is 1.5; expected an integer"),
        ("return", "12", 'return[0] is "12"; expected a number up to 1e100'),
        ("terminated", 1, "terminated[0] is 1; expected true or false"),
        ("truncated", None, "truncated[0] is null; expected true or false"),
        ("ends", "20", 'ends[0] is "20"; expected an integer'),
    ],
)
def test_a_column_of_another_type_is_refused_by_every_reader(
    path: Path, column: str, value: object, sentence: str
) -> None:
    part = path / "part-000000-000003"
    group = json.loads((part / "zarr.json").read_text())
    group["attributes"]["episodes"][column][0] = value
    (part / "zarr.json").write_bytes(durable.canonical_json(group))
    body = json.loads((part / manifest.NAME).read_text())
    manifest.write(part, {key: body[key] for key in ("kind", "format", "name")})
    with pytest.raises(BadData) as caught:
        Dataset.open(path)
    assert f"{part}/zarr.json: attributes.episodes.{sentence}" in str(caught.value)
    assert sentence in next(result.problem for result in verify(path).damaged)
    with pytest.raises(BadData, match=r"attributes\.episodes"):
        describe(path)


def test_lost_episodes_are_an_error_until_they_are_in_quarantine(path: Path) -> None:
    whole, two = Dataset.open(path), Dataset.open(path, 2)
    (path / QUARANTINE).mkdir()
    lost = path / "part-000003-000006"
    shutil.move(lost, path / "elsewhere")
    with pytest.raises(BadData, match="has lost episodes 3 to 5; run `wm collect`"):
        Dataset.open(path)
    shutil.move(path / "elsewhere", path / QUARANTINE / lost.name)
    rest = Dataset.open(path)
    assert (rest.episodes, rest.upto, rest.missing, rest.rows) == (6, 9, [(3, 6)], 120)
    assert rest.table["index"].tolist() == [0, 1, 2, 6, 7, 8]
    expected = np.concatenate([make_episode(k).rewards for k in (0, 1, 2, 6, 7, 8)])
    assert np.array_equal(rest.column("rewards"), expected)
    assert rest.fingerprint != whole.fingerprint
    assert Dataset.open(path, 2).fingerprint == two.fingerprint
    assert Dataset.open(path, 5).episodes == 3


def test_quarantine_may_name_any_range_of_episodes(path: Path) -> None:
    shutil.rmtree(path / "part-000003-000006")
    (path / QUARANTINE / "part-000000000-000000004").mkdir(parents=True)
    with pytest.raises(BadData, match="has lost episodes 3 to 5"):
        Dataset.open(path)
    (path / QUARANTINE / "part-000000004-001000000").mkdir()
    tracemalloc.start()
    assert Dataset.open(path).missing == [(3, 6)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("name", ["rewards", "rewards/c.0", "."])
def test_links_inside_a_dataset_are_refused(path: Path, tmp_path: Path, name: str) -> None:
    victim = (path / "part-000003-000006" / name).resolve()
    shutil.move(victim, tmp_path / "outside")
    victim.symlink_to(tmp_path / "outside")
    (path / INDEX).unlink(missing_ok=True)
    with pytest.raises(BadData, match="is a link"):
        Dataset.open(path).column("rewards")


def test_a_dataset_may_lie_elsewhere_behind_a_link(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.zarr").symlink_to(path)
    assert Dataset.open(tmp_path / "link.zarr").episodes == 9


def test_a_damaged_part_is_named(path: Path) -> None:
    (path / INDEX).unlink(missing_ok=True)
    victim = path / "part-000003-000006"
    (victim / "rewards" / "c.0").write_bytes(b"")
    with pytest.raises(BadData, match=r"part-000003-000006/rewards/c\.0 is missing or has another size"):
        Dataset.open(path)


def test_no_dataset_and_too_few_episodes_say_what_to_run(path: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match=r"Pong\.zarr does not exist; `wm ls` shows what there is"):
        Dataset.open(tmp_path / "Pong.zarr")
    with pytest.raises(MissingInput, match=r"run `wm collect --env ALE/Pong-v5` first\."):
        Dataset.open(Path("data", "ALE-Pong-v5.zarr"), env="ALE/Pong-v5")
    with pytest.raises(MissingInput, match=r"run `wm collect --env Pong --data other\.zarr` first\."):
        Dataset.open(Path("other.zarr"), env="Pong")
    with pytest.raises(MissingInput, match="has 9 episodes but 50 are needed; run `wm collect` with the same options"):
        Dataset.open(path, 50)


def test_what_memory_does_not_hold_is_refused_before_it_is_decoded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset.open(path)
    monkeypatch.setattr(shards, "UNASKED", 0)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    for read in (lambda: dataset.column("labels"), lambda: dataset.episodes_of(dataset.parts[0])):
        with pytest.raises(MemoryProblem, match=r"takes .* of memory and 1\.0 kB are free"):
            read()
    assert len(dataset.shard(dataset.parts[0], "rewards").all()) == 60


@pytest.mark.parametrize("names", [["a"] * 257, ["a", "b" * 101]])
def test_labels_of_unlikely_number_or_length_are_refused(tmp_path: Path, names: list[str]) -> None:
    create(tmp_path / "d.zarr", RECIPE | {"labels": names})
    with pytest.raises(BadData, match=r"labels is .* names of up to .*; expected at most 256 of 100 characters"):
        Dataset.open(tmp_path / "d.zarr")
