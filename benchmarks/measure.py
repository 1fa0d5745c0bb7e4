"""What every benchmark shares: how rates are taken and compared, and the line it prints."""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable


def one_core() -> None:
    """Keep this process to one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def formats() -> tuple[str, ...]:
    """Number formats to measure: bf16 only where the CPU has instructions for it, because without them it is slower."""
    import torch  # benchmarks of memory do without

    from wm.training.precision import has_bf16

    if has_bf16(torch.device("cpu")):
        return ("fp32", "bf16")
    print("this CPU has no instructions for bf16, which is left out", file=sys.stderr)
    return ("fp32",)


# The median of seven windows: other programs come and go, and a mean would have them.
def rate(work: Callable[[], object], seconds: float = 0.4, windows: int = 7) -> float:
    """Calls per second, the median of several windows."""
    work()
    return round(statistics.median(_window(work, seconds) for _ in range(windows)), 1)


# In turn, so that both meet the same load.
def rates(
    ours: Callable[[], int | None], reference: Callable[[], int | None], seconds: float = 1.0, windows: int = 7
) -> tuple[float, float, float]:
    """(ours, reference, ratio): medians over windows that take turns, because the machine is not always as fast. What
    is counted are calls, or what a call returns."""
    ours()
    reference()
    pairs = [(_window(ours, seconds), _window(reference, seconds)) for _ in range(windows)]
    one, two, ratio = (statistics.median(column) for column in zip(*((a, b, a / b) for a, b in pairs), strict=True))
    return round(one, 1), round(two, 1), round(ratio, 3)


def _window(work: Callable[[], object], seconds: float) -> float:
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        done = work()
        count += done if isinstance(done, int) else 1
    return count / (time.perf_counter() - began)


def report(
    name: str,
    ours: float,
    reference: float,
    goal: float,
    unit: str,
    ratio: float | None = None,
    lower_is_better: bool = False,
    gpu: str = "",
) -> None:
    """Print the JSON line. `ratio` is ours / reference, taken window by window where there are windows."""
    line = {
        "name": name,
        "ours": ours,
        "reference": reference,
        "ratio": round(ours / reference, 3) if ratio is None else ratio,
        "goal": goal,
        "unit": unit,
        "machine": f"{gpu or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(line | ({"lower_is_better": True} if lower_is_better else {})), flush=True)
