from pathlib import Path

import pytest

from wm.artifacts import runs
from wm.artifacts.runs import Artifact
from wm.report.rounds import first_of_rounds, is_continued, read_rounds


def test_a_round_of_any_number_is_read_without_looking_for_all_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, folders = runs.load, list[Path]()

    def counted(folder: Path, kind: str, command: str) -> Artifact:
        folders.append(folder)
        assert len(folders) < 10
        return load(folder, kind, command)

    monkeypatch.setattr(runs, "load", counted)
    for name in ("Pong", "Pong.round2", "Pong.round99999999999"):
        (tmp_path / name / "controller").mkdir(parents=True)
        (tmp_path / name / "controller" / "manifest.json").write_text("{}")
    damaged: list[str] = []
    assert read_rounds(tmp_path / "Pong.round99999999999", damaged) == []
    assert [Path(sentence.split()[0]).parts[-3] for sentence in damaged] == ["Pong", "Pong.round2"]


def test_only_plain_digits_number_a_round(tmp_path: Path) -> None:
    for name in ("Pong.round²", "Pong.round", "Pong.round-1", "Pong"):
        assert first_of_rounds(tmp_path / name) == tmp_path / name
        assert not is_continued(tmp_path / name)
        assert read_rounds(tmp_path / name) == []
    assert first_of_rounds(tmp_path / "Pong.round3") == tmp_path / "Pong"
