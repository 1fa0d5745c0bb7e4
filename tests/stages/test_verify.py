import json
from pathlib import Path

import pytest

from tests.conftest import write_dataset
from tests.stages.conftest import Output
from wm.episodes import schema
from wm.episodes.dataset import Dataset


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset of three parts, two of them broken."""
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    path = write_dataset(tmp_path / "d.zarr", 9)
    shard = path / "part-000000-000003" / "rewards" / "c.0"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(bytes(data))
    (path / "part-000003-000006" / "manifest.json").unlink()
    return path


def test_damage_is_an_error_that_counts_it_and_names_the_remedy(path: Path, output: Output) -> None:
    text = output("verify", str(path), code=65)
    assert "2 of 4 are damaged, first: " in text
    assert "--repair" in text


def test_a_repair_is_reported_and_leaves_a_whole_dataset(path: Path, output: Output) -> None:
    assert len(json.loads(output("verify", str(path), "--repair", "--json"))["repaired"]) == 2
    assert "agree with their checksums" in output("verify", str(path))
    assert Dataset.open(path).episodes == 3
