"""Flipped bits, cuts, deletions and swaps: never silent, always found and named."""

import itertools
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import write_dataset
from tests.faults.conftest import files_of
from wm.episodes import repair, schema
from wm.episodes.dataset import Dataset
from wm.episodes.index import NAME as INDEX
from wm.errors import BadData, MissingInput


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    return write_dataset(tmp_path / "d.zarr", 7)


def everything(path: Path) -> tuple[list[object], list[np.ndarray]]:
    """All that a reader can get out of a dataset."""
    dataset = Dataset.open(path)
    printed = [dataset.recipe, dataset.fingerprint, {k: v.tolist() for k, v in dataset.table.items()}]
    arrays = [dataset.column(name) for name in ("actions", "rewards", "labels")]
    return printed, arrays + [dataset.shard(part, "frames").all() for part in dataset.parts]


def is_silent(path: Path, real: tuple[list[object], list[np.ndarray]]) -> bool:
    """Whether reading gives something else than what was written, without an error."""
    try:
        printed, arrays = everything(path)
    except (BadData, MissingInput):
        return False
    return printed != real[0] or not all(map(np.array_equal, arrays, real[1]))


def attack(path: Path, trials: int, seed: int) -> None:
    chance = random.Random(seed)
    real, good = everything(path), files_of(path)
    for trial in range(trials):
        name = chance.choice(sorted(good))
        data = bytearray(good[name])
        if trial % 5:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        else:
            del data[chance.randrange(len(data)) :]
        (path / name).write_bytes(bytes(data))
        if trial % 2:
            (path / INDEX).unlink(missing_ok=True)
        assert not is_silent(path, real), f"{name}, trial {trial}, seed {seed}"
        broken = [checked.folder for checked in repair.check(path) if checked.problem]
        assert broken == [path / name.split("/")[0] if name.startswith("part-") else path], f"{name}, {trial}, {seed}"
        (path / name).write_bytes(good[name])
    assert not is_silent(path, real)


def test_flips_and_cuts_are_found(path: Path) -> None:
    attack(path, 100, seed=0)


@pytest.mark.slow
def test_ten_thousand_flips_and_cuts_are_found(path: Path) -> None:
    attack(path, 10_000, seed=1)


def test_every_deleted_file_is_found(path: Path) -> None:
    real = everything(path)
    for name, data in files_of(path).items():
        (path / name).unlink()
        assert not is_silent(path, real), name
        assert len([checked for checked in repair.check(path) if checked.problem]) == 1, name
        (path / name).write_bytes(data)


def swap(one: Path, two: Path, aside: Path) -> None:
    for source, target in ((one, aside), (two, one), (aside, two)):
        shutil.move(source, target)


def test_swapped_files_and_parts_are_found(path: Path, tmp_path: Path) -> None:
    real = everything(path)
    shards = sorted(path.glob("part-*/*/c*"))
    for one, two in itertools.combinations(shards, 2):
        swap(one, two, tmp_path / "aside")
        # Each is whole in itself, so only the manifests' digests can tell.
        assert [checked for checked in repair.check(path) if checked.problem], (one, two)
        swap(one, two, tmp_path / "aside")
    first, second = sorted(path.glob("part-*"))[:2]
    swap(first, second, tmp_path / "aside")
    assert not is_silent(path, real)
    assert len([checked for checked in repair.check(path) if checked.problem]) == 2


def test_foreign_files_are_left_alone(path: Path) -> None:
    real = everything(path)
    for name in (".DS_Store", "notes.txt", "part-x", "part-000000-000003.partial", "part-000007-000003"):
        (path / name).write_bytes(b"?")
    assert not is_silent(path, real)
    assert everything(path)[0] == real[0]
