"""Edits of the JSON files in a folder, by any value at any key, with checksums that agree afterwards."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from wm.artifacts import manifest

Keys = tuple[str | int, ...]
MISSING = b""  # in place of a value: its key goes too
# What JSON may spell and Python may not, and what is no JSON at all.
NASTY = (
    b"null", b"true", b'"<b>"', b"-1", b"0", b"1e300", b"1e999", b"NaN", b"9" * 40, b"9" * 5000, b"[[]]", b'{"a": {}}',
    b"[]", b"{}", b"0.5", b"[" * 1000 + b"]" * 1000, b'"\\ud800"', b'"\xff\xfe"', b'"\\u0000\\u001b[31m"', b'"../../x"',
)  # fmt: skip
_COMMON = (None, True, False, 0, -1, 2**53, 2**53 + 1, 0.5, 1e100, -1e300, "", "x", "é\n", "1", "random", "dreamer")
LEAVES = st.sampled_from(_COMMON) | st.integers() | st.floats()
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.sampled_from("ab"), LEAVES, max_size=2)
RAW = st.sampled_from((MISSING, *NASTY)) | VALUES.map(lambda value: json.dumps(value).encode())


def documents(file: Path) -> list[Any]:
    """The JSON values of a file: of a log those of its lines."""
    text = file.read_text()
    return [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else [json.loads(text)]


def keys(value: Any, before: Keys = ()) -> Iterator[Keys]:
    """Where a value can be replaced: the whole, every key, and of lists the first item and the last."""
    yield before
    if isinstance(value, dict):
        for name in value:
            yield from keys(value[name], (*before, name))
    elif isinstance(value, list):
        for number in sorted({0, len(value) - 1}) if value else ():
            yield from keys(value[number], (*before, number))


def edit(root: Path, file: Path, number: int, where: Keys, raw: bytes) -> None:
    """Put `raw` at a key of a file's document with this number; manifests up to `root` agree with it afterwards."""
    values = documents(file)
    value = _replaced(values[number], where, raw)
    if file.name == manifest.NAME:
        if where[:1] == ("recipe",) and {"recipe", "fingerprint"} <= value.keys():
            value["fingerprint"] = hashlib.sha256(_spelled(value["recipe"], raw, 1)).hexdigest()
        file.write_bytes(_sealed(value, raw))
        return
    if file.suffix == ".jsonl":
        lines = [json.dumps(value).encode() for value in values]
        file.write_bytes(b"\n".join([*lines[:number], _spelled(value, raw, None), *lines[number + 1 :], b""]))
    else:
        file.write_bytes(_spelled(value, raw, 1))
    _reseal(root, file)


_HOLE = "\ue000"  # a character of no meaning, where the raw bytes go


def _replaced(value: Any, where: Keys, raw: bytes) -> Any:
    if not where:
        return _HOLE
    value = json.loads(json.dumps(value))
    inner = value
    for key in where[:-1]:
        inner = inner[key]
    if raw == MISSING:
        del inner[where[-1]]
    else:
        inner[where[-1]] = _HOLE
    return value


def _spelled(value: Any, raw: bytes, indent: int | None) -> bytes:
    text = json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False)
    return text.encode().replace(f'"{_HOLE}"'.encode(), raw) + (b"\n" if indent else b"")


def _sealed(body: Any, raw: bytes) -> bytes:
    if not isinstance(body, dict):
        return _spelled(body, raw, 1)
    body.pop("sha256", None)
    return _spelled({**body, "sha256": hashlib.sha256(_spelled(body, raw, 1)).hexdigest()}, raw, 1)


def _reseal(root: Path, file: Path) -> None:
    for folder in file.parents:
        path, name = folder / manifest.NAME, file.relative_to(folder).as_posix()
        if path.is_file() and name in (body := json.loads(path.read_text())).get("files", {}):
            data = file.read_bytes()
            body["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            path.write_bytes(_sealed(body, MISSING))
        if folder == root:
            return
