from pathlib import Path

import pytest

from wm.errors import BadData
from wm.sweeps.journal import JournalFile


def test_a_reopened_journal_has_every_operation_but_the_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    journal = JournalFile(path, "begin anew")
    journal.append_logs([{"op_code": 0}, {"op_code": 4, "study_id": 0}])
    with path.open("ab") as file:
        file.write(b'{"op_code": 5, "tri')
    journal = JournalFile(path, "begin anew")
    assert journal.read_logs(0) == [{"op_code": 0}, {"op_code": 4, "study_id": 0}]
    journal.append_logs([{"op_code": 6}])
    assert JournalFile(path, "begin anew").read_logs(2) == [{"op_code": 6}]


@pytest.mark.parametrize("line", [b"[]", b"{}", b'{"op_code": "0"}', b"\xff", b'{"op_code": NaN}', b"[" * 100_000])
def test_a_line_that_is_no_operation_is_named(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    JournalFile(path, "begin anew").append_logs([{"op_code": 0}])
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(BadData, match=r"journal.log, line 2.*begin anew"):
        JournalFile(path, "begin anew")


def test_a_journal_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text("")
    (tmp_path / "journal.log").symlink_to(tmp_path / "other.log")
    with pytest.raises(BadData, match="is a link"):
        JournalFile(tmp_path / "journal.log", "begin anew")
