"""The console: results on stdout, everything else on stderr; tables; signals."""

import io
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from types import FrameType
from typing import Any, TextIO

import click

from wm.envs.shown_warnings import ShownOnce
from wm.errors import Stopped

THREAD_SECONDS = 5.0  # that threads of others have to end, such as those that send metrics
NARROWEST = 8  # characters of a column that wraps
FIRST_SAYS_SECONDS = 1.0  # torchrun looks ten times a second whether a process of its own has failed
EACH_WAITS_SECONDS = 0.5  # more than the one before: to say one line takes less
IMPORT_POLL_SECONDS = 0.05  # between two looks at whether an import has ended for which a signal waits
IMPORTS_FROM = "<frozen importlib._bootstrap>"  # the file of every import's frames
_PIECES = re.compile(r"[^\s/]*/|\S+|\s+")  # of a cell: it may be broken between them
_COLOURS = {"good": "green", "warning": "yellow", "bad": "red", "faint": "bright_black"}
_OWN_COLOUR = re.compile(r"\x1b\[(?:0|31|32|33|90)m")  # what `color` writes
# One table, because `global` in every function that changes one would hide which are changed.
_options: dict[str, Any] = {"quiet": False, "silent": False, "decided": True, "names": {}}


def be_quiet() -> None:
    """Leave out progress and messages; warnings, errors and results stay."""
    _options["quiet"] = True


def be_silent(silent: bool, decided: bool = True) -> None:
    """Write nothing at all, or no longer so: of the processes of torchrun one speaks. Until that is `decided`, an error
    is said late (`may_speak`)."""
    _options["silent"], _options["decided"] = silent, decided


def is_silent() -> bool:
    """Whether `be_silent` was asked for."""
    return bool(_options["silent"])


def may_speak(number: int) -> bool:
    """Whether to say an error. Process `number` of a machine that has not met the others of torchrun yet waits, each
    longer than the one before: torchrun ends them all once the first, which does not wait, has said the same."""
    if not _options["silent"] or _options["decided"]:
        return not _options["silent"]
    try:
        threading.Event().wait(FIRST_SAYS_SECONDS + EACH_WAITS_SECONDS * number)
    except KeyboardInterrupt:
        # Ctrl-C while it waits: the first process says it.
        return False
    return True


def is_quiet() -> bool:
    """Whether progress and messages are left out."""
    return bool(_options["quiet"] or _options["silent"])


def show_as(folder: str, address: str) -> None:
    """Show what a folder here stands for in place of its path."""
    _options["names"] = {**_options["names"], folder: address}


def _named(text: str) -> str:
    for folder, address in _options["names"].items():
        text = re.sub(re.escape(folder) + r"(?![\w+-]|\.\w)", address, text)  # not within a longer name
    return text


def color(text: str, kind: str, stream: TextIO | None = None) -> str:
    """`text` as a good, warning, bad or faint part of a result on `stream` (stdout unless given); plain where it is no
    terminal and under NO_COLOR."""
    return click.style(visible(text), fg=_COLOURS[kind]) if _has_colours(stream or sys.stdout) else text


def _has_colours(stream: TextIO) -> bool:
    # https://no-color.org
    return stream.isatty() and not os.environ.get("NO_COLOR")


def visible(text: str, keep: str = "\n") -> str:
    """`text` with every character that a terminal would obey as its escape, such as \\x1b; those in `keep` stay. Names
    in a copied folder may hold any character. Folders are named as `show_as` says."""
    named = _named(text)
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in named)


def echo(text: str, err: bool = False) -> None:
    """Write text and a line feed; it has no control characters besides line feeds and the colours of `color`."""
    if _has_colours(sys.stderr if err else sys.stdout):
        plain, colours = _OWN_COLOUR.split(text), _OWN_COLOUR.findall(text)
        text = "".join(visible(part) + code for part, code in zip(plain, [*colours, ""], strict=True))
    else:
        text = visible(text)
    click.echo(text, err=err)


def say(text: str) -> None:
    """Write one line for people to stderr, above a bar."""
    warning = text.startswith(("warning", "stopping"))
    if _options["silent"] or (_options["quiet"] and not warning):
        return
    text = color(text, "warning", sys.stderr) if warning else visible(text)
    if sys.stderr.isatty():
        from tqdm import tqdm

        tqdm.write(text, file=sys.stderr)
    else:
        echo(text, err=True)


def show_warnings_once() -> None:
    """Show Python's warnings, of environments and packages, as lines of ours: above a bar, and each once."""
    warnings.showwarning = ShownOnce(
        lambda text, category, file, line: say(f"warning: {category.__name__}: {text} ({file}, line {line})")
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], kinds: Mapping[str, str] | None = None) -> str:
    """Columns aligned by spaces, the header underlined, no wider than the terminal or COLUMNS: the widest columns wrap.
    A cell whose text is in `kinds` has the colour of that kind; a row of one cell is a heading of those that follow.
    Control characters become visible."""
    clean = [[visible(cell, keep="") for cell in row] for row in [header, *rows]]
    full = [row for row in clean if len(row) == len(header)]
    columns = list(zip(*full, strict=True))
    widths = _fit([max(map(len, column)) for column in columns], [_longest_piece(column) for column in columns])
    lines: list[str] = []
    for row in clean:
        if len(row) < len(header):
            lines += _wrap(row[0], width())
            continue
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
    return "\n".join(indent + line for line in _wrap(visible(text, keep=""), width() - len(indent)))


def _fit(widths: list[int], pieces: list[int]) -> list[int]:
    """Column widths within the terminal's: the widest columns shrink first, and below their longest unbreakable piece
    only when no other column can shrink."""
    for least in (pieces, [NARROWEST] * len(widths)):
        spare = [max(width - low, 0) for width, low in zip(widths, least, strict=True)]
        # Two spaces between columns.
        while sum(widths) + 2 * (len(widths) - 1) > width() and any(spare):
            widest = max((column for column in range(len(widths)) if spare[column]), key=widths.__getitem__)
            widths[widest] -= 1
            spare[widest] -= 1
    return widths


def _longest_piece(cells: Sequence[str]) -> int:
    """Characters that a line needs at least: a wrapped cell keeps its indent on every one."""
    return max(
        len(cell) - len(cell.lstrip()) + len(piece.rstrip())
        for cell in cells
        for piece in _PIECES.findall(cell.lstrip()) or [""]
    )


def _wrap(cell: str, width: int) -> list[str]:
    """Lines of a cell, broken between words and, where a word is a path, after its slashes."""
    if len(cell) <= width:
        return [cell]
    indent = " " * (len(cell) - len(cell.lstrip()))
    lines, line = [], indent
    for piece in _PIECES.findall(cell.lstrip()):
        if len(line) + len(piece.rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += piece if line.strip() else piece.lstrip()
        while len(line.rstrip()) > width:
            lines.append(line[:width])
            line = line[width:]
    return [*lines, line.rstrip()] if line.strip() else lines


def print_json(value: Any) -> None:
    """Print exactly one JSON object to stdout. What is not printable is escaped as JSON does it."""
    text = _named(json.dumps(value, indent=1, ensure_ascii=False))
    click.echo("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def open_closed_streams() -> None:
    """Open stdout and stderr to nowhere where they are closed, as by `wm ls >&-`: Python has none for them then. What
    the encoding of an open one lacks, as of a pipe on Windows, is written as its escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # until the process ends


def write_out() -> bool:
    """Write what is left of the output. False if its reader has gone, of which Python would complain at the exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit, and would complain of the broken pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """Send to stderr what is printed meanwhile, by an environment, a library in C or a worker process."""
    with ExitStack() as stack:
        own_out, own_err = sys.__stdout__, sys.__stderr__
        if own_out and own_err and (sys.stdout, sys.stderr) == (own_out, own_err):  # a caller may have replaced them
            own_out.flush()
            out = own_out.fileno()
            saved_out = os.dup(out)
            stack.callback(os.close, saved_out)
            os.dup2(own_err.fileno(), out)
            stack.callback(os.dup2, saved_out, out)
        stack.enter_context(redirect_stdout(sys.stderr))
        yield


def stop_signals() -> list[int]:
    """The signals that end a command: SIGINT, SIGTERM, and SIGHUP of a terminal that closes. What is ignored from the
    start, as SIGHUP under nohup, stays so."""
    # Windows has no SIGHUP.
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


def raise_on_signals() -> None:
    """Raise Stopped where a signal arrives, so that a command without a loop removes its temporary files too. During an
    import it waits for the end of it: an exception within the initialization of torch's C++ aborts Python."""

    def handle(number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            later = threading.Timer(IMPORT_POLL_SECONDS, signal.raise_signal, [number])
            later.daemon = True
            later.start()
            return
        signal.signal(number, signal.SIG_DFL)  # the second one ends the process at once
        raise Stopped(number)

    for number in stop_signals():
        signal.signal(number, handle)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORTS_FROM:
            return True
        frame = frame.f_back
    return False


def end_on_signals() -> None:
    """Let a signal end the process at once, whose command has finished."""
    for number in stop_signals():
        signal.signal(number, signal.SIG_DFL)


class Stop:
    """Set by the first signal of `stop_signals` and polled by every loop; the second one ends the process at once,
    unless signals may be `repeated`: torchrun passes on what a scheduler has sent to all processes already."""

    def __init__(self, repeated: bool = False) -> None:
        self.signal: int | None = None
        self._repeated = repeated

    def install(self) -> None:
        """Handle the signals from now on."""
        for number in stop_signals():
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None:
            if self._repeated:
                return
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
        say("stopping after the current step" + ("" if self._repeated else "; once more to stop at once"))

    def __call__(self) -> bool:
        return self.signal is not None

    def raise_if_stopped(self) -> None:
        """Raise Stopped once a signal has arrived."""
        if self.signal is not None:
            raise Stopped(self.signal)


def end_threads() -> bool:
    """Wait a while for the threads that an environment or a package left; whether all have ended. Python would wait
    without end, and no signal would help."""
    until = time.monotonic() + THREAD_SECONDS
    # Daemons end with the process.
    threads = [
        thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()
    ]
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    return not any(thread.is_alive() for thread in threads)
