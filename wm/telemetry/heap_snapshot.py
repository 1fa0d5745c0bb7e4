"""What is alive: by the stack that allocated it on a CUDA device, by shape and type in this process.

Kept as JSON, the largest first and at most `MOST` entries, so that the diagnosis does not become the leak.
"""

import gc
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from wm.artifacts import durable

NAME = "memory-{:08d}.json"
MOST = 300
HISTORY = 100_000  # allocations that CUDA remembers; its own default is without bound
DEPTH = 6  # frames of a stack that name it
Census = dict[str, list[int]]  # what: bytes, count


def begin() -> None:
    """Let CUDA remember where memory was allocated."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.memory._record_memory_history(max_entries=HISTORY)


def take() -> Census:
    """What is alive now."""
    import torch

    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    gc.collect()
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.device.type == "cpu":
            grown = f", made by {type(thing.grad_fn).__name__}" if thing.grad_fn is not None else ""
            _count(found, f"tensor {list(thing.shape)} {thing.dtype}{grown}", thing.numel() * thing.element_size())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for segment in torch.cuda.memory._snapshot()["segments"]:
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    _count(found, f"cuda {_stack(block)}", block["size"])
    largest = sorted(found.items(), key=lambda item: -item[1][0])
    return dict(largest[:MOST])


def _count(found: dict[str, list[int]], what: str, size: int) -> None:
    found[what][0] += size
    found[what][1] += 1


def _stack(block: dict[str, Any]) -> str:
    frames = [frame for frame in block.get("frames", ()) if frame["filename"].endswith(".py")][:DEPTH]
    return " < ".join(f"{Path(frame['filename']).name}:{frame['line']} {frame['name']}" for frame in frames) or "?"


def save(folder: Path, step: int) -> None:
    """Write the census of a step into a folder."""
    durable.write_json(folder / NAME.format(step), {"step": step, "alive": take()})


def growth(folder: Path) -> list[tuple[str, int, int]]:
    """What, bytes and count by which it grew between the first and the last census of a folder; largest first."""
    paths = sorted(folder.glob("memory-*.json"))
    if len(paths) < 2:
        return []
    first, last = (json.loads(path.read_bytes())["alive"] for path in (paths[0], paths[-1]))
    found = [
        (what, size - first.get(what, (0, 0))[0], count - first.get(what, (0, 0))[1])
        for what, (size, count) in last.items()
    ]
    return sorted((entry for entry in found if entry[1] > 0), key=lambda entry: -entry[1])
