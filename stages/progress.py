"""Progress with an ETA: of one piece of work, and of several processes side by side, as in `wm curriculum --jobs`."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from stages import console
from wm.units import format_duration

PLAIN_SECONDS = 10.0  # between lines of progress where stderr is no terminal
LEADER_SECONDS = 1.0  # between those for the process that shows them
TO_LEADER = "\t"  # before a line of progress for it, and between the fields of the line
SHORTEST_BAR = 10  # characters
_options: dict[str, Any] = {"usage": None, "leader": False}


def tell_leader() -> None:
    """Write progress for the process that started this one, which shows it beside that of others."""
    _options["leader"] = True


def shows_bars() -> bool:
    """Whether progress is drawn in place: on a terminal that was not asked to be quiet."""
    return sys.stderr.isatty() and not console.is_quiet()


def show_usage(usage: Callable[[], str] | None) -> None:
    """Let progress show what `usage` returns, such as the memory in use; None: no more."""
    _options["usage"] = usage


class Progress:
    """Progress of one piece of work: a bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, label: str, total: int, done: int, unit: str) -> None:
        self._label, self._total, self._unit = label, total, unit
        self._first = self._done = done
        self._start_loss = ""
        self._opened = self._written = time.monotonic()
        self._bar: Any = None
        self._quiet = console.is_quiet()
        if shows_bars():
            from tqdm import tqdm

            label, shape, _ = _shape(console.visible(label, keep=""), [])
            self._bar = tqdm(
                total=total, initial=done, desc=label, dynamic_ncols=True, leave=False, bar_format=shape,
                file=sys.stderr,
            )  # fmt: skip

    def update(self, done: int, **figures: str) -> None:
        """`done` of the total is done. `figures` are shown with it, the most important ones first."""
        step, self._done = done - self._done, done
        texts = self._texts(figures)
        if self._bar is not None:
            label, self._bar.bar_format, postfix = _shape(console.visible(self._label, keep=""), texts + self._rate())
            self._bar.set_description_str(label, refresh=False)
            self._bar.set_postfix_str(postfix, refresh=False)
            self._bar.update(step)
            return
        now = time.monotonic()
        every = LEADER_SECONDS if _options["leader"] else PLAIN_SECONDS
        if now - self._written >= every and done > self._first and not self._quiet:
            self._written = now
            seconds_left = (now - self._opened) / (done - self._first) * (self._total - done)
            parts = [
                f"{self._label}: {done}/{self._total} {self._unit}",
                *texts,
                f"about {format_duration(seconds_left)} left",
            ]
            if _options["leader"]:
                click.echo("".join(TO_LEADER + console.visible(part, keep="") for part in parts), err=True)
            else:
                console.say(", ".join(parts))

    def _texts(self, figures: Mapping[str, str]) -> list[str]:
        """`loss 1408 (start 3000)`, and the other figures; a training that resumed does not know its start."""
        texts = [f"{name.replace('_', ' ')} {value}" for name, value in figures.items()]
        if "loss" in figures and self._first == 0:
            self._start_loss = self._start_loss or figures["loss"]
            texts[list(figures).index("loss")] += f" (start {self._start_loss})"
        return texts + ([f"using {_options['usage']()}"] if _options["usage"] is not None else [])

    def _rate(self) -> list[str]:
        """`5.7 steps/s`, or `2.1 s/episode` where one takes longer than a second."""
        done, seconds = self._done - self._first, time.monotonic() - self._opened
        if done <= 0 or seconds <= 0:
            return []
        if done >= seconds:
            return [f"{done / seconds:.3g} {self._unit}/s"]
        return [f"{seconds / done:.3g} s/{self._unit.removesuffix('s')}"]

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
        elif _options["leader"] and self._written > self._opened:
            click.echo(TO_LEADER, err=True)


def _shape(label: str, figures: Sequence[str]) -> tuple[str, str, str]:
    """The label, the format and the figures of a bar within the terminal's columns. What does not fit is left out, not
    cut: first the later figures, then the bar, the time, the label but for its last word, and the first figure; at last
    the label is shortened."""
    percentage, time_left = ": 100%", " 00:00:00"
    room = shutil.get_terminal_size().columns - 1 - len(percentage)
    last_word, needed = label.rpartition(" ")[2], sum(len(figure) + 2 for figure in figures[:1])
    if len(last_word) + needed <= room < len(label) + needed:
        label = last_word
    label = shortened(label, room)
    room -= len(label)
    first = fitting(figures[:1], room)
    room -= len(first) + 2 if first else 0
    time = " {remaining}" if room >= len(time_left) else ""
    room -= len(time_left) if time else 0
    bar = "|{bar}|" if time and room >= SHORTEST_BAR + 2 else ""
    room -= SHORTEST_BAR + 2 if bar else 0
    later = fitting(figures[1:], room) if first and bar else ""
    return label, "{desc}: {percentage:3.0f}%" + bar + time + "{postfix}", ", ".join(filter(None, (first, later)))


def shortened(text: str, room: int) -> str:
    """`text` in at most so many characters, its end as `…` where it does not fit."""
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def fitting(texts: Sequence[str], room: int) -> str:
    """The first of `texts` that fit into `room` characters together, each after a comma."""
    joined = ""
    for text in texts:
        if len(joined) + len(text) + 2 > room:
            break
        joined += f", {text}"
    return joined.removeprefix(", ")


@contextmanager
def progress(label: str, total: int, unit: str, done: int = 0) -> Iterator[Progress]:
    """A Progress that is closed at the end."""
    opened = Progress(label, total, done, unit)
    try:
        yield opened
    finally:
        opened.close()


class SideBySide:
    """The lines of several processes, each after its name. Progress stays in a line of its own at the bottom of a
    terminal, and is one line every ten seconds elsewhere; messages stand above. Threads may share it."""

    def __init__(self) -> None:
        # Threads of several processes' output write to the same terminal.
        self._lock = threading.Lock()
        self._bars: dict[str, Any] = {}
        self._written: dict[str, float] = {}

    def show(self, name: str, line: str) -> bool:
        """Show a line that the process of this name has written; returns whether it is a message, not progress."""
        with self._lock:
            if not line.startswith(TO_LEADER):
                if line.strip():
                    console.say(f"{name} | {line.strip()}")
                return bool(line.strip())
            head, *fields = line.strip().split(TO_LEADER)
            if not head:  # what was shown is done
                if name in self._bars:
                    self._show_in_place(name, f"{name} | ...", [])
                return False
            head = f"{name} | {head.replace(f' {name}:', ':')}"  # its label names the environment again
            if shows_bars():
                self._show_in_place(name, head, fields)
            elif time.monotonic() - self._written.get(name, -PLAIN_SECONDS) >= PLAIN_SECONDS:
                self._written[name] = time.monotonic()
                console.say(", ".join([head, *fields]))
        return False

    def _show_in_place(self, name: str, head: str, fields: Sequence[str]) -> None:
        from tqdm import tqdm

        if name not in self._bars:
            self._bars[name] = tqdm(bar_format="{desc}", dynamic_ncols=True, leave=False, file=sys.stderr)
        room = shutil.get_terminal_size().columns - 1
        text = line_within(room, console.visible(head, keep=""), [console.visible(each, keep="") for each in fields])
        self._bars[name].set_description_str(text)

    def end(self, name: str) -> None:
        """The process has ended; its line of progress goes."""
        with self._lock:
            if (bar := self._bars.pop(name, None)) is not None:
                bar.close()


def line_within(room: int, head: str, fields: Sequence[str]) -> str:
    """`head` and the fields after it in at most so many characters. What does not fit is left out, not cut: first the
    later figures, then the last field, which is the time left, and the first figure; at last the head is shortened."""
    order = [0, len(fields) - 1, *range(1, len(fields) - 1)] if len(fields) > 1 else range(len(fields))
    included, room_left = set[int](), room - len(head)
    for number in order:
        if (needed := len(fields[number]) + 2) > room_left:
            break
        included.add(number)
        room_left -= needed
    return ", ".join([shortened(head, room), *(fields[number] for number in sorted(included))])
