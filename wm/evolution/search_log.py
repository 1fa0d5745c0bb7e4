"""The log of a search for C, by CMA-ES or policy gradient, and the checks of its lines.

Reports read it, so this module imports neither torch nor cma.
"""

from pathlib import Path
from typing import Any

from wm.artifacts import chained_log
from wm.artifacts.json_reader import COUNT, NUMBER, TEXT, list_of, one_of, table, table_of
from wm.artifacts.manifest import locate, sha256_file
from wm.errors import BadData

LOG = "generations.jsonl"
WHITENER = "whitener-{}.npy"  # after this generation

Line = dict[str, Any]
LINE = table(
    {
        "generation": COUNT,
        "in": one_of("real", "dream", "none"),
        "returns": list_of(NUMBER),
        "env_steps": COUNT,
        "seconds": NUMBER,
    },
    {"candidates": TEXT, "policy": TEXT, "validation": list_of(NUMBER), "files": table_of(TEXT)},
)


def way_out(folder: Path) -> str:
    """What to do about a damaged search."""
    return f"restore it, or remove {folder} to search again"


def read_log(folder: Path) -> list[Line]:
    """The complete lines of a search's log, finished or not; none if it does not exist. Raises BadData naming the line
    or file that was changed."""
    lines = chained_log.read(folder, LOG, LINE)
    check_lines(folder, lines)
    return lines


def check_lines(folder: Path, lines: list[Line]) -> None:
    """Raise BadData for a line that lacks a value, or a file that is not the one its line names."""
    path = folder / LOG
    for number, line in enumerate(lines, 1):
        evolved = line["generation"] and "policy" not in line  # by policy gradient, no episode may have ended
        lacking = "candidates" if evolved and "candidates" not in line else ""
        lacking = lacking or ("returns" if evolved and not line["returns"] else "")
        lacking = lacking or ("validation" if line.get("validation") == [] else "")
        if lacking:
            raise BadData(
                f"{path}, line {number}: {lacking} is missing or empty; expected a value, so {way_out(folder)}."
            )
        for name, digest in line.get("files", {}).items():
            file = locate(folder, name)
            if not file.is_file() or sha256_file(file) != digest:
                raise BadData(f"{file} is missing or not the one that line {number} of {LOG} names; {way_out(folder)}.")
