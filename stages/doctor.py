"""`wm doctor`: whether this machine has what it takes, and how to get what is missing."""

import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from stages import console
from stages.session import install_command
from wm import __version__
from wm.errors import WmError
from wm.units import format_size

PYTHONS = ((3, 11), (3, 13))
LITTLE_MEMORY, LITTLE_DISK = 2e9, 2e9  # bytes below which the quick preset gets into trouble
_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "box2d", "pygame-ce", "cma", "zstandard")
_EXTRAS = {
    "tensorboard": ("tb", "curves and images in TensorBoard"),
    "imageio_ffmpeg": ("mp4", "MP4 beside every GIF"),
    "minari": ("minari", "datasets in Minari's format"),
}


@dataclass(frozen=True)
class Check:
    """One finding: `state` is ok, missing (an extra or an environment that is not installed) or problem."""

    what: str
    state: str
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def examine() -> list[Check]:
    """Look at everything once; takes seconds."""
    return [*_python(), *_torch(), *_room(), *_environments(), *_extras()]


def table_of(checks: list[Check]) -> str:
    """The findings for people, with what to do below."""
    rows = [[check.what, check.state, check.found] for check in checks]
    lines = [console.table(["what", "state", "found"], rows)]
    remedies = [f"{check.what}: {check.remedy}" for check in checks if check.remedy]
    return "\n".join(lines + (["", *remedies] if remedies else []))


def problems(checks: list[Check]) -> list[Check]:
    """What keeps the pipeline from running at all. An environment that is missing is one only if all of them are."""
    found = [check for check in checks if check.state == "problem"]
    environments = [check for check in checks if check.what.startswith("environment")]
    return found or (environments if all(check.state != "ok" for check in environments) else [])


def _python() -> Iterator[Check]:
    low, high = PYTHONS
    fits = low <= sys.version_info[:2] <= high
    wanted = f"use Python {low[0]}.{low[1]} to {high[0]}.{high[1]}"
    told = f"{platform.python_version()} at {sys.executable}"
    yield Check("Python", "ok" if fits else "problem", told, "" if fits else wanted)
    yield Check("machine", "ok", f"{platform.platform()}, {os.cpu_count()} cores")
    versions = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    yield Check("packages", "ok", f"wm {__version__}, {versions}")


def _torch() -> Iterator[Check]:
    try:
        import torch

        from wm.training.precision import has_bf16
    except ImportError as error:
        yield Check("torch", "problem", str(error), "pip install torch")
        return
    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    told = device
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        told = f"{torch.cuda.get_device_name()}, {format_size(free)} of {format_size(total)} free"
    formats = "bf16" if has_bf16(torch.device(device)) else "fp32"
    yield Check("device", "ok", f"{told}; trains in {formats}")


def _room() -> Iterator[Check]:
    memory = psutil.virtual_memory()
    little = memory.available < LITTLE_MEMORY
    told = f"{format_size(memory.available)} of {format_size(memory.total)} free"
    yield Check("memory", "problem" if little else "ok", told, "close other programs" if little else "")
    here = Path.cwd()
    usage = shutil.disk_usage(here)
    state, remedy = "ok", ""
    if usage.free < LITTLE_DISK:
        state, remedy = "problem", "free some space, or work on another volume"
    if not os.access(here, os.W_OK):
        state, remedy = "problem", f"{here} cannot be written to; change to a folder of your own"
    yield Check("disk", state, f"{format_size(usage.free)} of {format_size(usage.total)} free here", remedy)


def _environments() -> Iterator[Check]:
    from wm.envs.known_envs import KNOWN_ENVS
    from wm.envs.registry import EnvConfig

    for name, spec in KNOWN_ENVS.items():
        try:
            began = time.monotonic()
            env = EnvConfig(name).make()
            env.reset(seed=0)
            env.step(env.action_space.sample())
            env.close()
            took = time.monotonic() - began
            yield Check(f"environment {name}", "ok", f"{spec.env_id}: made, reset and stepped in {took:.2f} s")
        except WmError as error:
            yield Check(f"environment {name}", "missing", str(error), f"pip install {spec.pip}")


def _extras() -> Iterator[Check]:
    for module, (extra, purpose) in _EXTRAS.items():
        there = importlib.util.find_spec(module) is not None
        remedy = "" if there else install_command(extra)
        yield Check(f"extra {extra}", "ok" if there else "missing", purpose, remedy)
    window = sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    yield Check("display", "ok" if window else "missing", "wm evaluate --visualize" + ("" if window else " needs one"))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
