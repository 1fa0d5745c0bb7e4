"""Memory and disk in use while a stage runs: looked at twice a second by a thread, processes below every four
seconds, because pages that several share cost 15 ms to tell apart."""

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import psutil

from stages import console
from wm.artifacts import durable
from wm.telemetry.usage import children_memory
from wm.units import format_size

SECONDS = 0.5
CHILDREN_EVERY = 8  # looks


class ResourceMonitor:
    """Watches this process with those below it, and some folders, as a context manager, and lets progress tell.
    `memory` is the most that was seen, in bytes, `left` what the folders hold now. A page counts once, whoever shares
    it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.memory, self.left, self._now, self._looks, self._children = 0, 0, 0, 0, 0
        self._folders, self._process = folders, psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "ResourceMonitor":
        self._look()
        self._thread.start()
        console.tell_in_use(lambda: f"{format_size(self._now)} of memory, {format_size(self.left)} on disk")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        console.tell_in_use(None)
        self._over.set()
        self._thread.join()
        self._look()

    def __str__(self) -> str:
        return f"{format_size(self.memory)} of memory, {format_size(self.left)} on disk"

    def _watch(self) -> None:
        while not self._over.wait(SECONDS):
            self._look()

    def _look(self) -> None:
        if self._looks % CHILDREN_EVERY == 0:
            self._children = children_memory()
        self._looks += 1
        self._now = self._process.memory_info().rss + self._children
        self.memory = max(self.memory, self._now)
        sizes = []
        for folder in self._folders:
            for place in (folder, folder.with_name(folder.name + ".partial")):
                with contextlib.suppress(OSError):  # it may be renamed between the two calls
                    sizes.append(durable.folder_size(place) if place.is_dir() else 0)
        self.left = sum(sizes)
