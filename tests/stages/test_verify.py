import json
import shutil
from pathlib import Path

import pytest

from stages.cli import run
from stages.verify import verify
from tests.conftest import RECIPE, make_episode, write_dataset
from tests.episodes.test_writer import bytes_of
from wm.episodes import schema
from wm.episodes.dataset import QUARANTINE, Dataset
from wm.episodes.writer import Writer
from wm.errors import BadData, MissingInput


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    return write_dataset(tmp_path / "d.zarr", 9)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(bytes(data))


def test_a_whole_dataset_has_no_problem(path: Path) -> None:
    report = verify(path.parent)
    assert [checked.folder.name for checked in report.checked] == [
        "d.zarr", "part-000000-000003", "part-000003-000006", "part-000006-000009",
    ]  # fmt: skip
    assert not report.broken


def test_every_broken_part_is_named_and_repair_keeps_the_rest(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = bytes_of(path)
    flip(path / "part-000000-000003" / "rewards" / "c.0")
    (path / "part-000003-000006" / "manifest.json").unlink()
    assert [broken.folder.name for broken in verify(path).broken] == ["part-000000-000003", "part-000003-000006"]
    assert run(["verify", str(path)]) == 65
    assert "2 of 4 are damaged, first: " in capsys.readouterr().err
    assert run(["verify", str(path), "--repair", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["repaired"]) == 2
    assert verify(path, repair=True).repaired == []
    rest = Dataset.open(path)
    assert (rest.episodes, rest.missing) == (3, [(0, 6)])
    assert rest.column("rewards").shape == (60,)
    with Writer(path, RECIPE) as writer:
        for index in writer.dataset.absent(9):
            writer.add(make_episode(index, terminated=index % 2 == 0).pack())
    held = bytes_of(path)
    assert {name: data for name, data in held.items() if not name.startswith(QUARANTINE)} == whole


def test_a_missing_part_is_found_although_every_other_checksum_holds(path: Path) -> None:
    shutil.rmtree(path / "part-000003-000006")
    assert "lost episodes 3 to 5" in verify(path.parent).broken[0].problem
    with pytest.raises(BadData, match="lost episodes 3 to 5"):
        Dataset.open(path)
    verify(path, repair=True)
    assert Dataset.open(path).episodes == 6


@pytest.mark.parametrize("file", ["manifest.json", "zarr.json"])
def test_a_broken_root_is_written_anew_from_a_part(path: Path, file: str) -> None:
    whole = bytes_of(path)
    flip(path / file)
    assert verify(path).broken[0].folder == path
    verify(path, repair=True)
    assert bytes_of(path) == whole


def test_a_part_can_be_checked_alone_and_an_empty_folder_is_refused(path: Path, tmp_path: Path) -> None:
    assert not verify(path / "part-000000-000003").broken
    (tmp_path / "nothing").mkdir()
    with pytest.raises(MissingInput, match="holds no dataset and no artifact"):
        verify(tmp_path / "nothing")
