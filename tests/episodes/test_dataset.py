import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import RECIPE, make_episode
from wm.episodes import schema
from wm.episodes.dataset import INDEX, Dataset
from wm.episodes.writer import Writer, create
from wm.errors import BadData, MissingInput


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    create(tmp_path / "d.zarr", RECIPE)
    with Writer(tmp_path / "d.zarr", RECIPE) as writer:
        for index in range(9):
            writer.add(make_episode(index, terminated=index % 2 == 0).pack())
    return tmp_path / "d.zarr"


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
    with Writer(path, RECIPE) as writer:
        writer.add(make_episode(9).pack())
    assert Dataset.open(path, 4).fingerprint == four.fingerprint
    assert Dataset.open(path).fingerprint != four.fingerprint


def test_the_index_is_only_a_cache(path: Path) -> None:
    before = Dataset.open(path).table["seed"].tolist()
    assert (path / INDEX).exists()
    (path / INDEX).write_text("{garbage")
    assert Dataset.open(path).table["seed"].tolist() == before
    index = json.loads((path / INDEX).read_text())
    index["part-000000-000003"]["table"]["seed"][0] = 7
    (path / INDEX).write_text(json.dumps(index))
    assert Dataset.open(path).table["seed"].tolist() == before


def test_parts_beyond_a_gap_do_not_count(path: Path) -> None:
    shutil.rmtree(path / "part-000003-000006")
    assert Dataset.open(path).episodes == 3


def test_a_damaged_part_is_named(path: Path) -> None:
    (path / INDEX).unlink(missing_ok=True)
    victim = path / "part-000003-000006"
    (victim / "rewards" / "c.0").write_bytes(b"")
    with pytest.raises(BadData, match=r"part-000003-000006/rewards/c\.0 is missing or has another size"):
        Dataset.open(path)


def test_no_dataset_and_too_few_episodes_say_what_to_run(path: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="run `wm collect --env Pong` first"):
        Dataset.open(tmp_path / "Pong.zarr")
    with pytest.raises(MissingInput, match="holds 9 episodes but 50 are asked for"):
        Dataset.open(path, 50)
