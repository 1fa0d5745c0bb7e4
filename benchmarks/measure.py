"""What every benchmark shares: the line it prints."""

import json
import os
import platform


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
