"""Lines that are chained: whatever is changed, removed or moved is named by its number."""

from pathlib import Path

import pytest

from wm.artifacts import chained_log, durable, runs
from wm.artifacts.json_reader import COUNT, FIGURE, table
from wm.errors import BadData

SCHEMA = table({"step": COUNT}, others=FIGURE)
VALUES = [{"step": step, "loss": 1.5 * step} for step in range(5)]


def parse(data: bytes, start: str = "") -> list[chained_log.Line]:
    return chained_log.parse(data, "log", start, SCHEMA, "restore it")


def test_lines_are_read_as_they_were_written_and_a_torn_last_one_is_dropped() -> None:
    data = chained_log.chain_all("", VALUES)
    assert [line.value for line in parse(data)] == VALUES
    assert b"".join(line.data for line in parse(data)) == data
    for torn in range(1, len(data.splitlines(keepends=True)[-1])):
        assert [line.value for line in parse(data[:-torn])] == VALUES[:-1]


def test_every_changed_digit_is_named_with_its_line() -> None:
    data = chained_log.chain_all("", VALUES)
    for place, byte in enumerate(data):
        if chr(byte).isdigit():
            changed = data[:place] + (b"1" if byte != ord("1") else b"2") + data[place + 1 :]
            number = data[:place].count(b"\n") + 1
            with pytest.raises(BadData, match=f"log, line {number} does not agree with its digest.*restore it"):
                parse(changed)


@pytest.mark.parametrize("number", range(1, 6))
def test_a_line_that_is_moved_removed_repeated_or_without_its_digest_is_named(number: int) -> None:
    lines = chained_log.chain_all("", VALUES).splitlines(keepends=True)
    before, line, after = lines[: number - 1], lines[number - 1], lines[number:]
    bare = line[: line.index(b', "digest"')] + b"}\n"
    with pytest.raises(BadData, match=f"line {number} has no digest"):
        parse(b"".join([*before, bare, *after]))
    with pytest.raises(BadData, match=f"line {number + 1} does not agree"):
        parse(b"".join([*before, line, line, *after]))
    if after:
        with pytest.raises(BadData, match=f"line {number} does not agree"):
            parse(b"".join([*before, *after]))
        with pytest.raises(BadData, match=f"line {number} does not agree"):
            parse(b"".join([*before, after[0], line, *after[1:]]))


def test_a_line_of_another_type_is_named() -> None:
    with pytest.raises(BadData, match='log, line 2: step is "x"; expected an integer'):
        parse(chained_log.chain_all("", [{"step": 1}, {"step": "x"}]))


def test_the_log_of_another_recipe_does_not_fit(tmp_path: Path) -> None:
    assert chained_log.start(tmp_path) == ""
    for latent in (32, 64):
        durable.write_json(tmp_path / runs.RECIPE_FILE, {"latent": latent})
        if latent == 32:
            durable.write_bytes(tmp_path / "log", chained_log.chain_all(chained_log.start(tmp_path), VALUES))
            assert chained_log.read(tmp_path, "log", SCHEMA) == VALUES
    with pytest.raises(BadData, match="line 1 does not agree"):
        chained_log.read(tmp_path, "log", SCHEMA)


def test_syncing_returns_the_digest_of_the_last_line(tmp_path: Path) -> None:
    assert chained_log.sync(tmp_path / "log") == ""
    data = chained_log.chain_all("", VALUES)
    durable.write_bytes(tmp_path / "log", data)
    assert chained_log.sync(tmp_path / "log") == parse(data)[-1].digest
