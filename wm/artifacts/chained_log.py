"""Logs of artifacts: a JSON object a line, each with a digest of itself and of all lines before it.

The chain begins with the digest of the recipe, so lines of another artifact do not fit. In an unfinished artifact the
chain tells whether a line was edited, removed or moved; in a finished one the manifest does. A kill can tear only the
last line, which is dropped.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wm.artifacts import durable, json_reader, manifest, runs
from wm.artifacts.json_reader import Schema
from wm.errors import BadData

DIGITS = 32  # of a digest: 128 bits
_DIGEST = re.compile(rb', "digest": "([0-9a-f]{%d})"\}' % DIGITS)
_LONGEST_END = 64  # bytes in which the end of a line with its digest fits


@dataclass(frozen=True)
class Line:
    """A line of a log: its value without the digest, its bytes with the line feed, and its digest."""

    value: dict[str, Any]
    data: bytes
    digest: str


def start(folder: Path) -> str:
    """The digest before the first line of every log in an unfinished artifact's folder."""
    path = folder / runs.RECIPE_FILE
    return manifest.sha256_file(path) if path.is_file() else ""


def chain(previous: str, value: dict[str, Any]) -> Line:
    """The line that follows one with the digest `previous`."""
    body = json.dumps(value).encode()
    digest = _digest(previous, body)
    return Line(value, body[:-1] + f', "digest": "{digest}"}}\n'.encode(), digest)


def chain_all(previous: str, values: Iterable[dict[str, Any]]) -> bytes:
    """The bytes of a log with these values."""
    data = []
    for value in values:
        line = chain(previous, value)
        previous = line.digest
        data.append(line.data)
    return b"".join(data)


def _digest(previous: str, body: bytes) -> str:
    return hashlib.sha256(previous.encode() + body).hexdigest()[:DIGITS]


def parse(data: bytes, source: str, previous: str, schema: Schema, way_out: str, finite: bool = True) -> list[Line]:
    """The complete lines of an unfinished artifact's log, each of the schema. Raises BadData with the number of the
    first line that is damaged, or whose digest is missing or differs."""
    lines = []
    for number, text in enumerate(data.split(b"\n")[:-1], 1):
        where = f"{source}, line {number}"
        value = _value(text, where, schema, way_out, finite)
        # From the last comma on: an edited line may have a text that looks like a digest further in front.
        match = _DIGEST.fullmatch(text, text.rfind(b", "))
        body = text[: match.start()] + b"}" if match else text
        if match is None or _digest(previous, body) != match[1].decode():
            problem = "does not agree with its digest" if match else "has no digest"
            raise BadData(f"{where} {problem}; {way_out}.")
        previous = match[1].decode()
        lines.append(Line(value, text + b"\n", previous))
    return lines


def _value(text: bytes, where: str, schema: Schema, way_out: str, finite: bool) -> dict[str, Any]:
    value = json_reader.parse(text, where, json_reader.TABLE, way_out, finite)
    value.pop("digest", None)
    json_reader.validate(value, where, schema, way_out)
    return dict(value)


def read(folder: Path, name: str, schema: Schema, finite: bool = True) -> list[dict[str, Any]]:
    """The complete lines of a log in an artifact's folder; none if it has no such log. Raises BadData unless a finished
    artifact's manifest, or the chain of an unfinished one, agrees."""
    path = folder / name
    artifact = runs.read_any(folder)
    if not path.exists():
        return []
    way_out = f"restore it, or remove {folder} to begin anew"
    if artifact is None:
        lines = parse(durable.read_log(path), str(path), start(folder), schema, way_out, finite)
        return [line.value for line in lines]
    # The manifest has the digest of a finished log, so its chain is not computed again.
    texts = artifact.read_bytes(name).split(b"\n")[:-1]
    return [_value(text, f"{path}, line {k}", schema, way_out, finite) for k, text in enumerate(texts, 1)]


def resume(folder: Path, name: str, schema: Schema, way_out: str) -> list[Line]:
    """The complete lines of a log in an unfinished artifact's folder; none if it has no such log. An incomplete last
    line is cut off the file. Raises BadData naming the line that was changed."""
    path = folder / name
    if not path.exists():
        return []
    data = durable.read_log(path)
    lines = parse(data, str(path), start(folder), schema, way_out)
    complete = b"".join(line.data for line in lines)
    if data != complete:
        durable.write_bytes(path, complete)
    return lines


def sync(path: Path) -> str:
    """Make a log durable. Returns the digest of its last line; empty without one."""
    if not path.exists():
        return ""
    with durable.open_file(path, "rb+") as file:
        os.fsync(file.fileno())
        # The end alone is read: logs are synced at every checkpoint, and grow to 50 MB.
        file.seek(max(file.seek(0, os.SEEK_END) - _LONGEST_END, 0))
        match = _DIGEST.search(file.read())
    return match[1].decode() if match else ""
