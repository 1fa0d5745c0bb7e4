import json
import re
from pathlib import Path
from typing import Any

import pytest

from wm.artifacts import json_reader
from wm.artifacts.json_reader import COUNT, FLAG, NUMBER, TEXT, between, list_of, one_of, or_null, table
from wm.errors import BadData

SCHEMA = table({"name": TEXT, "sizes": list_of(COUNT)}, {"rate": or_null(NUMBER), "gray": FLAG})


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(BadData) as caught:
        json_reader.read(path, SCHEMA)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_file_of_the_schema_is_read(tmp_path: Path) -> None:
    value = {"name": "é", "sizes": [1, 2], "rate": None}
    (tmp_path / "f").write_text(json.dumps(value))
    assert json_reader.read(tmp_path / "f", SCHEMA) == value


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": 3}, "name is 3; expected text"),
        ({"name": None}, "name is null; expected text"),
        ({"sizes": [1, "2"]}, 'sizes[1] is "2"; expected an integer from 0 to 2^53'),
        ({"sizes": [True]}, "sizes[0] is true; expected an integer"),
        ({"sizes": [10**30]}, "sizes[0] is an integer beyond 2^53; expected an integer"),
        ({"sizes": {}}, "sizes is a table of 0 values; expected a list"),
        ({"rate": "fast"}, 'rate is "fast"; expected a number up to 1e100'),
        ({"gray": 0}, "gray is 0; expected true or false"),
        ({"colour": 1}, "colour is unknown; expected one of name, sizes, rate, gray"),
    ],
)
def test_a_wrong_value_is_named_with_key_and_expectation(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    assert sentence in refused(tmp_path / "f", json.dumps({"name": "a", "sizes": []} | change).encode())


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'{"sizes": []}', "name is missing; expected it in the file"),
        (b"[]", "the whole is a list of 0 values; expected a table"),
        (b"", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON ('utf-8' codec can't decode"),
        (b'\xef\xbb\xbf{"name": "a", "sizes": []}', "is not JSON (Unexpected UTF-8 BOM"),
        (b'{"name": "\\ud800", "sizes": []}', "surrogates not allowed"),
        (b'{"name": "a", "sizes": [NaN]}', "NaN is no JSON"),
        (b'{"name": "a", "sizes": [1e999]}', "1e999 is beyond the largest float"),
        (b'{"name": "a", "sizes": [' + b"9" * 5000 + b"]}", "is not JSON"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"[" * 200 + b"]" * 200, "is nested too deeply"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "is nested too deeply"),
        (b" " * (1 << 20) + b"{}", "larger than 1048576 bytes"),
    ],
)
def test_what_is_no_file_of_ours_is_one_sentence(tmp_path: Path, data: bytes, sentence: str) -> None:
    message = refused(tmp_path / "f", data)
    assert sentence in message
    assert message.endswith("restore it or create the artifact again.")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadData, match="cannot be read"):
            json_reader.read(path, SCHEMA)


def test_bounds_and_choices_are_named() -> None:
    schema = table({"size": between(16, 256), "network": one_of("small", "paper")})
    with pytest.raises(BadData, match="f: size is 8; expected an integer from 16 to 256"):
        json_reader.parse(b'{"size": 8, "network": "small"}', "f", schema)
    with pytest.raises(BadData, match='f: network is "big"; expected small or paper'):
        json_reader.parse(b'{"size": 16, "network": "big"}', "f", schema)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ("[0.5, 1e101]", "[1] is 1e+101"),
        ("[0.5, NaN]", "[1] is NaN"),
        ("[0.5, -Infinity]", "[1] is -Infinity"),
        ("[0.5, true]", "[1] is true"),
    ],
)
def test_a_value_that_is_none_is_found_in_a_list_of_numbers(values: str, fault: str) -> None:
    """The sum of a list tells that all are within the bound, but not which one is beyond it."""
    json_reader.parse(b"[1e100, -1e100, 1e100]", "f", list_of(NUMBER))
    with pytest.raises(BadData, match=re.escape(f"f: {fault}; expected a number up to 1e100")):
        json_reader.parse(values.encode(), "f", list_of(NUMBER), finite=False)
