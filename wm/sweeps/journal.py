"""Optuna's journal in a file of ours: an operation a line, chained as every log is, so that an edited one is found.

Only the process that holds the sweep's lock writes, so Optuna's lock file is not needed: a killed process would leave
it. A line that a kill tore off is cut before the next one is written; Optuna's own file could not be read again.
"""

from pathlib import Path
from typing import Any

from wm.artifacts import chained_log, durable
from wm.artifacts.json_reader import ANYTHING, COUNT, table

_OPERATION = table({"op_code": COUNT}, others=ANYTHING)


class JournalFile:
    """The operations in a file, which need not exist, for optuna.storages.JournalStorage. Raises BadData for a line
    that is none, or that was changed."""

    def __init__(self, path: Path, way_out: str) -> None:
        self._path = path
        data = durable.read_log(path) if path.exists() else b""
        complete = data[: data.rfind(b"\n") + 1]
        if data != complete:
            durable.write_bytes(path, complete)
        self._digest = chained_log.start(path.parent)
        lines = chained_log.parse(complete, str(path), self._digest, _OPERATION, way_out)
        if lines:
            self._digest = lines[-1].digest
        self._operations = [line.value for line in lines]

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The operations from this number on."""
        return self._operations[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write operations, and sync the file."""
        for operation in logs:
            line = chained_log.chain(self._digest, operation)
            durable.append(self._path, line.data)
            self._digest = line.digest
        self._operations += logs
