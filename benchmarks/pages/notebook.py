"""docs/python.ipynb, the examples of docs/python.md as a notebook; benchmarks.pages.reference writes it."""

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n", re.M | re.S)


def examples() -> list[str]:
    """The examples of the page, which run one after the other."""
    return _EXAMPLE.findall(PAGE.read_text())


def notebook() -> str:
    """The notebook: prose and examples in turn, without outputs (nbformat 4.4, which asks for no ids of cells)."""
    pieces = _EXAMPLE.split(PAGE.read_text())  # prose, example, prose, ...
    cells = [_cell(piece, is_code=number % 2 == 1) for number, piece in enumerate(pieces) if piece.strip()]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}, indent=1) + "\n"


def _cell(text: str, is_code: bool) -> dict[str, Any]:
    source = {"metadata": {}, "source": text.strip().splitlines(keepends=True)}
    if is_code:
        return {"cell_type": "code", "execution_count": None, "outputs": [], **source}
    return {"cell_type": "markdown", **source}
