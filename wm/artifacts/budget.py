"""The disk budget: refuse before anything is written, and stop cleanly when a limit comes near.

Free space and inodes are those of the volume of the target, found through symbolic links.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from wm.errors import DiskProblem, UsageProblem

RESERVE = 1 << 30
RESERVE_SHARE = 0.05
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_size(text: str) -> int:
    """`500MB`, `1.5 GB`, `2000000` -> bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", text.upper())
    if match is None:
        raise UsageProblem(f"size is {text!r}; expected a number with a unit, such as 500MB or 2GB.")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


def show_size(size: float) -> str:
    """Bytes for people: 1.5 GB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{int(size)} B"


@dataclass(frozen=True)
class DiskBudget:
    """How many bytes may be used at `target`; `limit` is the user's own, None for none."""

    target: Path
    limit: int | None = None

    def _volume(self) -> Path:
        step = self.target.resolve()
        while not step.exists():
            step = step.parent
        return step

    def available(self, used: int) -> int:
        """Bytes that may still be written when `used` are already there: free less reserve, and the limit's rest."""
        usage = shutil.disk_usage(self._volume())
        free = usage.free - min(RESERVE, int(RESERVE_SHARE * usage.total))
        return free if self.limit is None else min(free, self.limit - used)

    def require(self, need: int, used: int, what: str) -> None:
        """Raise DiskProblem, before anything is written, unless `need` more bytes and a few inodes are available."""
        available = self.available(used)
        if need > available:
            raise DiskProblem(
                f"{what} needs about {show_size(need)} at {self.target} but only {show_size(max(available, 0))} may be "
                "used; free some space, raise --disk-budget, or ask for less."
            )
        volume = self._volume()
        inodes = os.statvfs(volume).f_favail if hasattr(os, "statvfs") else None
        # Some filesystems (btrfs) report 0 of 0 inodes because they have no fixed number.
        if inodes is not None and inodes < 64 and os.statvfs(volume).f_files > 0:
            raise DiskProblem(f"{what} needs inodes at {self.target} but {inodes} are left; remove some small files.")
