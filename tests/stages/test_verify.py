import shutil
from pathlib import Path

import pytest

from stages.verify import verify
from tests.conftest import RECIPE, make_episode
from wm.episodes import schema
from wm.episodes.writer import Writer, create
from wm.errors import BadData


def test_a_missing_part_is_found_although_every_other_checksum_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    create(tmp_path / "d.zarr", RECIPE)
    with Writer(tmp_path / "d.zarr", RECIPE) as writer:
        for index in range(9):
            writer.add(make_episode(index).pack())
    assert len(verify(tmp_path)) == 4
    shutil.rmtree(tmp_path / "d.zarr" / "part-000003-000006")
    with pytest.raises(BadData, match="1 parts that do not follow on the others"):
        verify(tmp_path)
