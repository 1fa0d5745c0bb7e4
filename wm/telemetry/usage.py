"""Memory and disk in use, as numbers by name, cheap enough to be logged with every line of metrics.

RssAnon, not RSS: pages of files that the kernel keeps are not a leak. `unexplained` is the growth of RssAnon since the
first reading, less the growth of known buffers. It stays near 0 in a healthy process, whatever buffers it fills. Every
few readings malloc is asked to return its free memory (`trimmed`): in a training on frames that varies by 200 MB, which
would hide a small leak or look like a large one.
"""

import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from wm.artifacts import durable
from wm.telemetry.malloc import trim

MB = 1e6
TRIM_EVERY = 5  # readings: returning and allocating again takes some 20 ms, reading three processes' pages 15
CUDA_SHARE = 0.95  # of the device that a process may allocate where the driver would spill instead of refuse
_PROC = Path("/proc")


def anonymous_memory() -> int:
    """RssAnon of this process in bytes (RSS where /proc is missing)."""
    return _mapped()[0]


def _mapped() -> tuple[int, int]:
    """RssAnon and RssFile of this process in bytes."""
    try:
        status = dict(line.split(":", 1) for line in (_PROC / "self/status").read_text().splitlines())
        return tuple(int(status[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))  # type: ignore[return-value]
    except (OSError, KeyError):
        # /proc exists on Linux alone; elsewhere mapped files cannot be told apart.
        return int(psutil.Process().memory_info().rss), 0


def children_memory() -> int:
    """Anonymous bytes of all descendants of this process: its children and, as a server forks workers, theirs. A page
    that several of them share counts once, divided among them."""
    try:
        return sum(_anonymous_share(process) for process in _descendants(str(os.getpid())))
    except OSError:
        # Without /proc the sum counts shared pages once for each child.
        with contextlib.suppress(psutil.Error):
            return sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))
        return 0


def _descendants(process: str) -> Iterator[str]:
    for thread in os.listdir(_PROC / process / "task"):
        try:
            children = (_PROC / process / "task" / thread / "children").read_text().split()
        except OSError:
            if thread == process:  # the first thread lives as long as the process
                raise
            continue
        for child in children:
            yield child
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                yield from _descendants(child)


def _anonymous_share(process: str) -> int:
    with contextlib.suppress(OSError):  # it may have ended meanwhile
        parts = (_PROC / process / "smaps_rollup").read_text().split("\nPss_Anon:")
        if len(parts) == 2:
            return int(parts[1].split()[0]) * 1024
        resident, shared = (_PROC / process / "statm").read_text().split()[1:3]  # an older kernel
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0


class Meter:
    """Reads memory and disk in use; `folder` is the artifact whose bytes on disk are counted."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._first, self._readings, self._children = folder, 0, 0, 0

    def read(self, buffers: int) -> dict[str, float]:
        """Numbers by name; `buffers` are the bytes of the known long-lived buffers."""
        due = self._readings % TRIM_EVERY == 0
        trimmed = due and trim()
        if due:
            self._children = children_memory()
        anonymous, mapped = _mapped()
        if self._readings == 0:
            self._first = anonymous - buffers
        self._readings += 1
        usage = {
            "rss_anon_mb": anonymous / MB,
            "rss_file_mb": mapped / MB,
            "children_mb": self._children / MB,
            "buffers_mb": buffers / MB,
            "unexplained_mb": (anonymous - buffers - self._first) / MB,
            "memory_free_mb": psutil.virtual_memory().available / MB,
            "disk_mb": durable.folder_size(self._folder) / MB,
            "disk_free_mb": shutil.disk_usage(self._folder).free / MB,
            "trimmed": float(trimmed),
        }
        return {name: round(value, 3) for name, value in (usage | cuda_memory()).items()}


def cuda_memory() -> dict[str, float]:
    """The CUDA allocator's own counters; empty where no CUDA is in use. NVML is not asked: under WDDM and WSL2 it
    reports -1 for every process."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return {}
    stats: dict[str, Any] = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    usage = {
        "cuda_allocated_mb": stats.get("allocated_bytes.all.current", 0) / MB,
        "cuda_reserved_mb": stats.get("reserved_bytes.all.current", 0) / MB,
        "cuda_retries": stats.get("num_alloc_retries", 0),
        "cuda_free_mb": free / MB,
        "cuda_total_mb": total / MB,
    }
    for pool in ("small", "large"):
        for kind in ("allocated", "reserved", "active"):
            usage[f"cuda_{kind}_{pool}_mb"] = stats.get(f"{kind}_bytes.{pool}_pool.current", 0) / MB
        usage[f"cuda_blocks_{pool}"] = stats.get(f"active.{pool}_pool.current", 0)
    return usage


def driver_spills() -> bool:
    """Whether this machine's driver pages device memory out to the host instead of refusing: Windows and WSL2."""
    return os.name == "nt" or "microsoft" in platform.release().lower()


def limit_cuda_memory() -> None:
    """Where the driver would spill to the host, let the allocator refuse first."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and driver_spills():
        torch.cuda.set_per_process_memory_fraction(CUDA_SHARE)


def optimizer_bytes(optimizer: Any) -> int:
    """Weights, gradients and an optimizer's moments on the CPU, in bytes."""
    total = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            tensors = [parameter, parameter.grad, *optimizer.state.get(parameter, {}).values()]
            total += sum(_bytes(tensor) for tensor in tensors)
    return total


def _bytes(tensor: Any) -> int:
    if tensor is None or not hasattr(tensor, "element_size") or tensor.device.type != "cpu":
        return 0
    return int(tensor.numel() * tensor.element_size())
