"""Whether this machine has what wm needs: Python and packages, a device, room, environments and extras."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from wm import __version__, extras
from wm.errors import LONGEST_VALUE, WmError
from wm.units import format_size

# Those that setup.cfg allows and the tests run on.
PYTHONS = ((3, 11), (3, 13))
LITTLE_MEMORY, LITTLE_DISK = 2e9, 2e9  # bytes below which the quick preset gets into trouble
_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "box2d", "pygame-ce", "cma", "zstandard", "zarr", "numcodecs")


@dataclass(frozen=True)
class Check:
    """One check: `state` is ok, missing (an extra or an environment that is not installed) or problem."""

    what: str
    state: str
    finding: str
    remedy: str = ""


def examine(folder: Path, clock: Callable[[], float]) -> list[Check]:
    """Look at everything once, with the room on the volume of `folder`; takes seconds."""
    return [*_python(), *_torch(), *_room(folder), *_environments(clock), *_extras()]


def problems(checks: list[Check]) -> list[Check]:
    """Checks whose failure stops every stage. A missing environment does so only if all of them are missing."""
    failed = [check for check in checks if check.state == "problem"]
    environments = [check for check in checks if check.what.startswith("environment")]
    return failed or (environments if all(check.state != "ok" for check in environments) else [])


def _python() -> Iterator[Check]:
    low, high = PYTHONS
    fits = low <= sys.version_info[:2] <= high
    advice = f"use Python {low[0]}.{low[1]} to {high[0]}.{high[1]}"
    finding = f"{platform.python_version()} at {sys.executable}"
    yield Check("Python", "ok" if fits else "problem", finding, "" if fits else advice)
    yield Check("machine", "ok", f"{platform.platform()}, {os.cpu_count()} cores")
    yield _packages()


def _packages() -> Check:
    if packages := extras.outdated():
        finding, remedy = extras.describe_outdated(packages)
        return Check("packages", "problem", finding, remedy)
    versions = [f"wm {__version__}", *(f"{name} {_version(name)}" for name in _PACKAGES)]
    return Check("packages", "ok", ", ".join(versions))


def _torch() -> Iterator[Check]:
    try:
        import torch

        from wm.training.precision import has_bf16
    except Exception as error:
        # A line of the list, as all others: `wm doctor` must show the rest, too.
        remedy = "pip install torch" if isinstance(error, ImportError) else extras.SETTINGS_ADVICE
        yield Check("torch", "problem", " ".join(str(error).split())[:LONGEST_VALUE], remedy)
        return
    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    finding = device
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        finding = f"{torch.cuda.get_device_name()}, {format_size(free)} of {format_size(total)} free"
    formats = "bf16" if has_bf16(torch.device(device)) else "fp32"
    yield Check("device", "ok", f"{finding}; trains in {formats}")


def _room(folder: Path) -> Iterator[Check]:
    import psutil

    memory = psutil.virtual_memory()
    little = memory.available < LITTLE_MEMORY
    finding = f"{format_size(memory.available)} of {format_size(memory.total)} free"
    yield Check("memory", "problem" if little else "ok", finding, "close other programs" if little else "")
    usage = shutil.disk_usage(folder)
    state, remedy = "ok", ""
    if usage.free < LITTLE_DISK:
        state, remedy = "problem", "free some space, or work on another volume"
    if not os.access(folder, os.W_OK):
        state, remedy = "problem", f"{folder} cannot be written to; change to a folder of your own"
    yield Check("disk", state, f"{format_size(usage.free)} of {format_size(usage.total)} free", remedy)


def _environments(clock: Callable[[], float]) -> Iterator[Check]:
    from wm.envs.known_envs import KNOWN_ENVS
    from wm.envs.registration import one_line
    from wm.envs.registry import EnvConfig

    for name, spec in KNOWN_ENVS.items():
        try:
            began = clock()
            env = EnvConfig(name).make()
            env.reset(seed=0)
            env.step(env.action_space.sample())
            env.close()
            took = clock() - began
            yield Check(f"environment {name}", "ok", f"{spec.env_id}: built and stepped in {took:.2f} s")
        except WmError as error:
            yield Check(f"environment {name}", "missing", str(error), f"pip install {spec.pip}")
        except Exception as error:  # packages in versions that were not written for each other may raise anything
            yield Check(f"environment {name}", "missing", f"it raised {one_line(error)}", f"pip install {spec.pip}")


def _extras() -> Iterator[Check]:
    for name, extra in extras.EXTRAS.items():
        if problem := extras.import_problem(name):
            yield Check(f"extra {name}", "missing", f"{extra.purpose}: {problem}", extras.install_command(name))
        else:
            yield Check(f"extra {name}", "ok", extra.purpose)
    display = sys.platform in ("win32", "darwin") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ))
    finding = "wm evaluate --visualize" + ("" if display else " needs one; --record-video does not")
    yield Check("display", "ok" if display else "missing", finding)


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
