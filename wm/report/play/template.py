"""What all pages that `wm play` writes have in common: page.html, the style and the scripts, around a game's data."""

import html
import json
import re
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from wm.artifacts import durable
from wm.report.characters import visible
from wm.report.plots import COLOURS

LARGEST = 3_000_000  # bytes of a page, that it can be sent as a letter and opens at once
SCRIPTS = ("layers.js", "models.js", "dream.js", "page.js")
_GAP = re.compile(r"\{\{(\w+)\}\}")
# What may stand in the gaps: neither an element nor the end of a script or of an attribute.
_DATA = {"models": b'[^<>"]*', "title": b"[^<]*", "world": b"[^<]*", "weights": b"[^<]*"}


def fill(description: dict[str, Any], weights: str) -> bytes:
    """page.html with everything in it. A name cannot end the script that holds it."""
    data = {
        "models": html.escape(description.get("models", "")),
        "title": html.escape(f"{description['env']}, dreamt"),
        "world": json.dumps(description, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "weights": weights,
    }
    parts = data | _code()
    page = _GAP.sub(lambda match: parts[match[1]], _read("page.html"))
    return visible(page).encode(errors="xmlcharrefreplace")


def is_filled(path: Path) -> bool:
    """Whether the page at a path has this version's code and no other, whatever its data are: anybody may have put it
    there."""
    if path.stat().st_size > LARGEST:
        return False
    return _pattern().fullmatch(durable.read_bytes(path)) is not None


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[bytes]:
    code, pieces = _code(), _GAP.split(_read("page.html"))  # text and names of gaps in turn
    parts = [re.escape(piece.encode()) for piece in pieces]
    for number, name in enumerate(pieces[1::2]):
        parts[2 * number + 1] = re.escape(code[name].encode()) if name in code else _DATA[name]
    return re.compile(b"".join(parts))


def _code() -> dict[str, str]:
    """The style and the scripts."""
    light, dark = ("".join(f"--{name}:{pair[mode]};" for name, pair in COLOURS.items()) for mode in (0, 1))
    colours = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    scripts = "\n".join(f"<script>\n{_read(name)}</script>" for name in SCRIPTS)
    return {"style": colours + _read("page.css"), "scripts": scripts}


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
