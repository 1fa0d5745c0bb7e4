"""Memory and disk in use while a command runs, measured by a thread.

This process is measured twice a second, its children and the disk every four seconds: telling shared pages apart costs
15 ms, and so does a dataset of a hundred parts.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from wm.artifacts import durable
from wm.telemetry.usage import children_memory
from wm.units import format_size

INTERVAL = 0.5  # seconds
REST_EVERY = 8  # measurements

ShowUsage = Callable[[Callable[[], str] | None], None]


def _ignore(usage: Callable[[], str] | None) -> None:
    pass


class ResourceMonitor:
    """Monitors this process with its children, and some folders, as a context manager.

    `peak_memory` is the largest memory so far and `disk` the present size of the folders, in bytes. A page that
    several processes share counts once. Within the context `show_usage` has a function that says both in words; it is
    called with None at the end.
    """

    def __init__(self, folders: Sequence[Path], show_usage: ShowUsage = _ignore) -> None:
        self.peak_memory, self.disk, self._memory, self._count, self._children = 0, 0, 0, 0, 0
        self._folders, self._show_usage, self._process = folders, show_usage, psutil.Process()
        self._ended = threading.Event()
        # A daemon, so that an error in the main thread ends the process.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "ResourceMonitor":
        self._measure()
        self._thread.start()
        self._show_usage(lambda: f"{format_size(self._memory)} of memory, {format_size(self.disk)} on disk")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._show_usage(None)
        self._ended.set()
        self._thread.join()
        self._count = 0  # the last measurement is of all
        self._measure()

    def __str__(self) -> str:
        return f"{format_size(self.peak_memory)} of memory, {format_size(self.disk)} on disk"

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self._measure()

    def _measure(self) -> None:
        if self._count % REST_EVERY == 0:
            self._children = children_memory()
            self._measure_disk()
        self._count += 1
        self._memory = self._process.memory_info().rss + self._children
        self.peak_memory = max(self.peak_memory, self._memory)

    def _measure_disk(self) -> None:
        sizes = []
        for folder in self._folders:
            for path in (folder, folder.with_name(folder.name + ".partial")):
                with contextlib.suppress(OSError):  # it may be renamed between the two calls
                    sizes.append(durable.folder_size(path) if path.is_dir() else 0)
        self.disk = sum(sizes)
