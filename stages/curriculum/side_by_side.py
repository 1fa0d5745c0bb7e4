"""What several processes write to the console, side by side: `wm curriculum --jobs`."""

import shutil
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from stages import console


class SideBySide:
    """The lines of several processes, each after its name. Progress stays in a line of its own at the bottom of a
    terminal, and is one line every ten seconds elsewhere; messages stand above. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bars: dict[str, Any] = {}
        self._written: dict[str, float] = {}

    def show(self, name: str, line: str) -> bool:
        """Show a line that the process of this name has written; returns whether it is a message, not progress."""
        with self._lock:
            if not line.startswith(console.TO_LEADER):
                if line.strip():
                    console.say(f"{name} | {line.strip()}")
                return bool(line.strip())
            head, *fields = line.strip().split(console.TO_LEADER)
            head = f"{name} | {head.replace(f' {name}:', ':')}"  # its label names the environment again
            if console.shows_bars():
                self._show_in_place(name, head, fields)
            elif time.monotonic() - self._written.get(name, -console.PLAIN_SECONDS) >= console.PLAIN_SECONDS:
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
    shown, left = set[int](), room - len(head)
    for number in order:
        if (needed := len(fields[number]) + 2) > left:
            break
        shown.add(number)
        left -= needed
    return ", ".join([console.shortened(head, room), *(fields[number] for number in sorted(shown))])
