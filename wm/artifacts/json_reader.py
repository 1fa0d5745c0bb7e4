"""JSON that anyone may have edited: every file is parsed here, and checked against a schema.

A schema is a function of a value and its key. It raises Mismatch for a value of the wrong type, or a missing key, so
that code behind the reader never meets one.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

from wm.artifacts import durable
from wm.errors import BadData

MAX_BYTES = 1 << 20  # of a file; a larger one is refused before it is parsed
MAX_DEPTH = 32  # of nested lists and tables; ours have at most 8
LARGEST = 1 << 53  # of an integer: beyond it floats lose digits, and beyond 64 bits numpy raises
LARGEST_NUMBER = 1e100  # of a figure: sums and squares of larger ones overflow, and nothing measured is near
LONGEST_NAME = 255  # bytes of a file's name, as on ext4, NTFS and APFS
LONGEST_PATH = 4096  # bytes of a path, as on Linux
WAY_OUT = "restore it or create the artifact again"


class Mismatch(Exception):
    """The value at `key` is not as `expected`."""

    def __init__(self, key: str, actual: str, expected: str) -> None:
        super().__init__(f"{key or 'the whole'} is {actual}; expected {expected}")


Schema = Callable[[Any, str], None]


@dataclass(frozen=True)
class _Leaf:
    """The schema of a single value. `all_of` may accept a list of values at once: a dataset of 10,000 episodes has
    60,000 of them in its tables, and a call for each costs more than reading them."""

    expected: str
    accepts: Callable[[Any], bool]
    all_of: Callable[[list[Any]], bool] = lambda values: False

    def __call__(self, value: Any, key: str) -> None:
        if not self.accepts(value):
            raise Mismatch(key, _describe(value), self.expected)


def _is_integer(value: Any) -> bool:
    # `type`, not isinstance: True is an int in Python, and would pass as 1.
    return type(value) is int and abs(value) <= LARGEST


def _all_integers(values: list[Any], low: int = -LARGEST) -> bool:
    return set(map(type, values)) == {int} and min(values) >= low and max(values) <= LARGEST


def _can_be_path(text: str) -> bool:
    """Whether an operating system can be asked for it: it raises for others."""
    try:
        path = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return b"\0" not in path and len(path) <= LONGEST_PATH and max(map(len, path.split(b"/"))) <= LONGEST_NAME


ANYTHING: Schema = _Leaf("anything", lambda value: True)
TEXT: Schema = _Leaf("text", lambda value: isinstance(value, str))
PATH: Schema = _Leaf("the path of a file or a folder", lambda value: isinstance(value, str) and _can_be_path(value))
FLAG: Schema = _Leaf(
    "true or false", lambda value: isinstance(value, bool), lambda values: set(map(type, values)) == {bool}
)
INTEGER: Schema = _Leaf("an integer below 2^53", _is_integer, _all_integers)
COUNT: Schema = _Leaf(
    "an integer from 0 to 2^53",
    lambda value: _is_integer(value) and value >= 0,
    lambda values: _all_integers(values, low=0),
)
NUMBER: Schema = _Leaf(
    "a number up to 1e100",
    lambda value: _is_integer(value) or (type(value) is float and abs(value) <= LARGEST_NUMBER),
    # A sum within the bound has no value beyond it, and NaN makes it NaN. Others are looked at one by one.
    lambda values: set(map(type, values)) == {float} and sum(map(abs, values)) <= LARGEST_NUMBER,
)
FIGURE: Schema = _Leaf(
    "a number up to 1e100, or null",
    lambda value: (
        value is None or _is_integer(value) or (type(value) is float and not LARGEST_NUMBER < abs(value) < inf)
    ),
)


def between(low: int, high: int) -> Schema:
    """An integer within bounds."""
    return _Leaf(f"an integer from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def one_of(*values: str) -> Schema:
    """One of these texts."""
    return _Leaf(" or ".join(values), lambda value: isinstance(value, str) and value in values)


def or_null(schema: Schema) -> Schema:
    """A value of the schema, or null."""

    def check(value: Any, key: str) -> None:
        if value is not None:
            schema(value, key)

    return check


def list_of(schema: Schema, length: int | None = None) -> Schema:
    """A list, of this length if it is given."""

    def check(value: Any, key: str) -> None:
        if not isinstance(value, list) or length not in (None, len(value)):
            raise Mismatch(key, _describe(value), "a list" if length is None else f"a list of {length} values")
        if isinstance(schema, _Leaf) and schema.all_of(value):
            return
        for number, item in enumerate(value):
            schema(item, f"{key}[{number}]")

    return check


def list_of_each(*schemas: Schema) -> Schema:
    """A list with one value of each schema, in their order."""

    def check(value: Any, key: str) -> None:
        list_of(ANYTHING, len(schemas))(value, key)
        for number, (item, schema) in enumerate(zip(value, schemas, strict=True)):
            schema(item, f"{key}[{number}]")

    return check


def table(
    required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, others: Schema | None = None
) -> Schema:
    """A JSON object with these keys. `others` is the schema of all other keys; without it there must be none."""
    known = {**(optional or {}), **required}

    def check(value: Any, key: str) -> None:
        if not isinstance(value, dict):
            raise Mismatch(key, _describe(value), "a table of keys and values")
        for name in required:
            if name not in value:
                raise Mismatch(_join(key, name), "missing", "it in the file")
        for name, item in value.items():
            schema = known.get(name, others)
            if schema is None:
                raise Mismatch(_join(key, name), "unknown", f"one of {', '.join([*required, *(optional or {})])}")
            if schema is not ANYTHING:
                schema(item, _join(key, name))

    return check


def table_of(schema: Schema) -> Schema:
    """A JSON object with any keys, its values of one schema."""
    return table({}, others=schema)


def by_number(schema: Schema, low: int = 0) -> Schema:
    """A JSON object whose keys are numbers from `low` on, its values of one schema."""
    any_keys = table_of(schema)

    def check(value: Any, key: str) -> None:
        any_keys(value, key)
        for name in value:
            # Nine digits: a longer key is no number of steps, and Python refuses to convert thousands of digits.
            if not (name.isascii() and name.isdecimal() and len(name) < 10 and int(name) >= low):
                raise Mismatch(_join(key, name), "unknown", f"numbers from {low} on as keys")

    return check


TABLE: Schema = table_of(ANYTHING)


def read(path: Path | str, schema: Schema, way_out: str = WAY_OUT) -> Any:
    """The JSON in a small file. Raises BadData naming path, key, value and what was expected."""
    return parse(read_small(path, way_out), str(path), schema, way_out)


def read_small(path: Path | str, way_out: str = WAY_OUT) -> bytes:
    """The bytes of a small file. Raises BadData for a link, a large file, and one that cannot be read; PermissionError
    where that is not permitted: what is in the file may be intact."""
    try:
        data = durable.read_at_most(path, MAX_BYTES)
    except PermissionError:
        # A PermissionError is an OSError, too, and would become BadData below.
        raise
    except OSError as error:
        raise BadData(f"{path} cannot be read ({str(error)[:200]}); {way_out}.") from None
    if data is None:
        raise BadData(f"{path} is larger than {MAX_BYTES} bytes; {way_out}.")
    return data


def parse(data: bytes, source: str, schema: Schema, way_out: str = WAY_OUT, finite: bool = True) -> Any:
    """The value in JSON bytes. Raises BadData naming `source`; never another error. Only logs of figures are not
    `finite`: they may have the NaN and Infinity that JSON lacks."""
    try:
        text = data.decode("utf-8")
        if text.startswith("\ufeff"):  # a decoder would expect a value there, and say so
            raise ValueError("Unexpected UTF-8 BOM")
        value = (_FINITE if finite else _ANY).decode(text)
        # A value with fewer brackets than MAX_DEPTH cannot be deeper, so most files need no walk.
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
            _check_depth(value)
        if b"\\" in data and b"\\u" in data:  # one byte is found ten times faster than two
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair can neither be shown nor hashed
    except RecursionError:
        raise BadData(f"{source} is nested too deeply; {way_out}.") from None
    except ValueError as error:  # no UTF-8, no JSON, an integer of thousands of digits
        raise BadData(f"{source} is not JSON ({str(error)[:120]}); {way_out}.") from None
    validate(value, source, schema, way_out)
    return value


def validate(value: Any, source: str, schema: Schema, way_out: str = WAY_OUT) -> None:
    """Raise BadData naming `source`, the key, the value and what was expected, unless `value` is of the schema."""
    try:
        schema(value, "")
    except Mismatch as mismatch:
        raise BadData(f"{source}: {mismatch}, so {way_out}.") from None


def _constant(name: str) -> Any:
    # Python's decoder accepts NaN and Infinity unless it is told what to do with them.
    raise ValueError(f"{name} is no JSON")


def _finite_float(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is beyond the largest float")
    return value


# Made once: `json.loads` with options makes a decoder for each call. A dataset of 10,000 episodes has 628 of them.
_FINITE, _ANY = json.JSONDecoder(parse_constant=_constant, parse_float=_finite_float), json.JSONDecoder()


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        containers = (item for item in level if isinstance(item, dict | list))
        level = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return
    raise RecursionError


# Keys and values of strangers are cut at 60 characters, so that a message stays a line or two.
def _join(key: str, name: str) -> str:
    return f"{key}.{name[:60]}" if key else name[:60]


def _describe(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"{'a table' if isinstance(value, dict) else 'a list'} of {len(value)} values"
    if type(value) is int and abs(value) > LARGEST:
        return "an integer beyond 2^53"
    return json.dumps(value, ensure_ascii=False)[:60]
