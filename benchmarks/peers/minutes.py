"""Minutes: CPU time of a command and of its children, which other programs on the machine do not lengthen."""

import json
import os
import subprocess
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

Reading = tuple[float, float]  # time of day, and CPU seconds spent until then


def _cpu_seconds(process: psutil.Process) -> float:
    """Of `process`, of those it started that still run, and of those that ended."""
    try:
        every = (process, *process.children(recursive=True))
    except psutil.NoSuchProcess:
        # It has ended meanwhile.
        return 0.0
    total = 0.0
    for each in every:
        try:
            total += sum(each.cpu_times()[:4])  # user and system; of its own, and of its children that ended
        except psutil.NoSuchProcess:
            # As above.
            continue
    return total


def run_measured(command: Sequence[str], folder: Path, log: Path, path: Path, every: float = 2.0) -> int:
    """Run `command` in `folder` on one thread, with Python's modules in `path`, and append readings to `log` as it
    runs. A command that resumes adds to the log it began. Returns its exit code."""
    before = _last(log)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(path)}
    with log.open("a") as file, subprocess.Popen(command, cwd=folder, env=environment) as started:
        process, spent = psutil.Process(started.pid), before
        while started.poll() is None:
            spent = max(spent, before + _cpu_seconds(process))
            file.write(json.dumps([round(time.time(), 1), round(spent, 2)]) + "\n")
            file.flush()
            time.sleep(every)
        return started.returncode


def _last(log: Path) -> float:
    readings = read(log) if log.exists() else []
    return readings[-1][1] if readings else 0.0


def read(log: Path) -> list[Reading]:
    """The readings of a log, first to last, without a line that a kill left half-written."""
    lines = log.read_text().splitlines(keepends=True)
    readings = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(float(when), float(spent)) for when, spent in readings]


@dataclass(frozen=True)
class CpuClock:
    """Minutes by the readings of a log."""

    readings: list[Reading]
    name = "cpu"

    def minutes(self, when: float) -> float:
        """CPU minutes spent until this time of day."""
        number = bisect_right(self.readings, (when, float("inf")))
        return self.readings[number - 1][1] / 60 if number else 0.0


@dataclass(frozen=True)
class WallClock:
    """Minutes of a run that nobody measured: on one thread, its CPU time was at most the time that went by."""

    start: float
    name = "wall"

    def minutes(self, when: float) -> float:
        """Minutes since the start."""
        return (when - self.start) / 60


Clock = CpuClock | WallClock
