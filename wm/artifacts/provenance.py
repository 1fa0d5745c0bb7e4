"""Where a result came from: versions of packages, the commit, the machine. Recorded with it, not part of its recipe."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from wm import __version__

# Packages of which another release may change results or bytes: simulators, codecs, torch and cma.
_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "box2d", "zstandard", "zarr", "numcodecs", "cma")


def describe_program() -> dict[str, Any]:
    """The versions that can change a result, the machine, and the commit of wm."""
    return {
        "versions": {name: _version_of(name) for name in _PACKAGES} | {"wm": __version__},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "commit": commit(),
    }


def _version_of(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of this source tree, with `+` when it is changed; None for an installed package."""
    # wm/artifacts/provenance.py lies two folders below the root of the source tree.
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        # Seconds; any value of that size would do. It only bounds how long a hanging file system delays a stage.
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        # Provenance is a note: no git, or a repository of another user, must not fail a training.
        return None
