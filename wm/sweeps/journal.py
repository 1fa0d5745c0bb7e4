"""Optuna's journal in a file of ours: a line of JSON for every operation, in the format of its own journal file.

Only the process that holds the sweep's lock writes, so Optuna's lock file is not needed: a killed process would leave
it. A line that a kill tore off is cut before the next one is written; Optuna's own file could not be read again.
"""

import json
from pathlib import Path
from typing import Any

from wm.artifacts import durable, json_reader
from wm.artifacts.json_reader import ANYTHING, COUNT, table

_OPERATION = table({"op_code": COUNT}, others=ANYTHING)


class JournalFile:
    """The operations in a file, which need not exist, for optuna.storages.JournalStorage. Raises BadData for a line
    that is none."""

    def __init__(self, path: Path, way_out: str) -> None:
        self._path = path
        data = durable.read_bytes(path) if path.exists() else b""
        complete = data[: data.rfind(b"\n") + 1]
        if data != complete:
            durable.write_bytes(path, complete)
        self._operations = [
            json_reader.parse(line, f"{path}, line {number}", _OPERATION, way_out)
            for number, line in enumerate(complete.splitlines(), 1)
        ]

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The operations from this number on."""
        return self._operations[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write operations, and sync the file."""
        lines = [json.dumps(operation, separators=(",", ":")) + "\n" for operation in logs]
        durable.append(self._path, "".join(lines).encode())
        self._operations += logs
