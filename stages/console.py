"""The console: results on stdout, everything else on stderr; progress with an ETA; signals; exit codes."""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from wm.errors import Stopped
from wm.units import format_duration

PLAIN_SECONDS = 10.0
NARROWEST = 8  # characters of a column that wraps
_COLOURS = {"good": "green", "warning": "yellow", "bad": "red", "faint": "bright_black"}
_manners: dict[str, Any] = {"quiet": False, "in_use": None}


def be_quiet() -> None:
    """Leave out progress and news; warnings, errors and results stay."""
    _manners["quiet"] = True


def tell_in_use(told: Callable[[], str] | None) -> None:
    """Let progress say what memory and disk are in use; None: no more."""
    _manners["in_use"] = told


class Progress:
    """Progress of one piece of work: a bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, label: str, total: int, done: int, unit: str) -> None:
        self._label, self._total, self._unit = label, total, unit
        self._first = self._done = done
        self._began = self._said = time.monotonic()
        self._bar: Any = None
        self._quiet = _manners["quiet"]
        if sys.stderr.isatty() and not self._quiet:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=done, desc=label, unit=unit, dynamic_ncols=True, leave=False)

    def update(self, done: int, **figures: str) -> None:
        """`done` of the total is done; `figures` are shown beside it."""
        step, self._done = done - self._done, done
        if _manners["in_use"] is not None:
            figures["using"] = _manners["in_use"]()
        if self._bar is not None:
            self._bar.set_postfix(figures, refresh=False)
            self._bar.update(step)
            return
        now = time.monotonic()
        if now - self._said >= PLAIN_SECONDS and done > self._first and not self._quiet:
            self._said = now
            left = (now - self._began) / (done - self._first) * (self._total - done)
            shown = "".join(f", {name} {value}" for name, value in figures.items())
            say(f"{self._label}: {done}/{self._total} {self._unit}{shown}, about {format_duration(left)} left")

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


@contextmanager
def progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[Progress]:
    """A Progress that is closed at the end."""
    shown = Progress(label, total, done, unit)
    try:
        yield shown
    finally:
        shown.close()


def say(text: str) -> None:
    """One line for people, on stderr, above a running bar."""
    if _manners["quiet"] and not text.startswith(("warning", "stopping")):
        return
    if sys.stderr.isatty():
        from tqdm import tqdm

        tqdm.write(text, file=sys.stderr)
    else:
        click.echo(text, err=True)


def color(text: str, kind: str) -> str:
    """`text` in the colour of good, warning, bad or faint; plain where stdout is no terminal and under NO_COLOR."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=_COLOURS[kind])


def table(header: Sequence[str], rows: Sequence[Sequence[str]], kinds: Mapping[str, str] | None = None) -> str:
    """Columns aligned by spaces, the header underlined, no wider than the terminal or COLUMNS: the widest columns wrap.
    A cell whose text is in `kinds` has the colour of that kind. What a terminal would obey is not passed on."""
    clean = [["".join(c if c.isprintable() else "\ufffd" for c in cell) for cell in row] for row in [header, *rows]]
    widths = _fit([max(len(row[column]) for row in clean) for column in range(len(header))])
    lines: list[str] = []
    for row in clean:
        cells = [_wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for number in range(max(map(len, cells))):
            texts = [cell[number] if number < len(cell) else "" for cell in cells]
            padded = [text.ljust(width) for text, width in zip(texts, widths, strict=True)]
            padded[-1] = padded[-1].rstrip()
            kind = [(kinds or {}).get(cell) for cell in row]
            coloured = [color(cell, name) if name else cell for cell, name in zip(padded, kind, strict=True)]
            lines.append("  ".join(coloured).rstrip())
        if row is clean[0]:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)


def width() -> int:
    """Columns of the terminal, or COLUMNS; without bound elsewhere, as in a pipe."""
    return shutil.get_terminal_size(fallback=(sys.maxsize, 0)).columns


def wrap(text: str, indent: str = "  ") -> str:
    """Text in lines that fit the terminal, each indented."""
    return "\n".join(indent + line for line in _wrap(text, width() - len(indent)))


def _fit(widths: list[int]) -> list[int]:
    while sum(widths) + 2 * (len(widths) - 1) > width() and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _wrap(cell: str, width: int) -> list[str]:
    """Lines of a cell, broken between words and, where a word is a path, after its slashes."""
    if len(cell) <= width:
        return [cell]
    indent = " " * (len(cell) - len(cell.lstrip()))
    lines, line = [], indent
    for piece in re.findall(r"[^\s/]*/|\S+|\s+", cell.lstrip()):
        if len(line) + len(piece.rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += piece if line.strip() else piece.lstrip()
        while len(line.rstrip()) > width:
            lines.append(line[:width])
            line = line[width:]
    return [*lines, line.rstrip()] if line.strip() else lines


def print_json(value: Any) -> None:
    """Exactly one JSON object on stdout."""
    click.echo(json.dumps(value, indent=1, ensure_ascii=False))


class Stop:
    """Set by the first SIGINT or SIGTERM and polled by every loop; the second one ends the process at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def install(self) -> None:
        """Take over both signals."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._arrived)

    def _arrived(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
        say("stopping after the current step; once more to stop at once")

    def __call__(self) -> bool:
        return self.signal is not None

    def raise_if_stopped(self) -> None:
        """Raise Stopped once a signal has arrived."""
        if self.signal is not None:
            raise Stopped(self.signal)
