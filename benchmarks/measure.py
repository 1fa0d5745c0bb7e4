"""What every benchmark shares: how a rate is taken, and the line it prints."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable


def rate(work: Callable[[], object], seconds: float = 0.4, windows: int = 7) -> float:
    """Calls per second, the median of several windows."""
    work()
    found = []
    for _ in range(windows):
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            work()
            count += 1
        found.append(count / (time.perf_counter() - began))
    return round(statistics.median(found), 1)


def report(name: str, ours: float, reference: float, goal: float, unit: str, lower_is_better: bool = False) -> None:
    """Print the JSON line. `ratio` is ours / reference."""
    line = {
        "name": name,
        "ours": ours,
        "reference": reference,
        "ratio": round(ours / reference, 3),
        "goal": goal,
        "unit": unit,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(line | ({"lower_is_better": True} if lower_is_better else {})))
