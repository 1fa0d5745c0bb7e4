"""What is alive in memory: by shape and type in this process, by the stack that allocated it on a CUDA device.

A snapshot is kept as JSON, the largest entries first and at most `MAX_ENTRIES`, so that the diagnosis does not become
the leak.
"""

import gc
from collections import defaultdict
from pathlib import Path
from typing import Any

from wm.artifacts import durable, manifest
from wm.artifacts.json_reader import COUNT, list_of, table, table_of

NAME = "memory-{:08d}.json"
MAX_ENTRIES = 300
MAX_CUDA_HISTORY = 100_000  # allocations that CUDA remembers; its own default is without bound
STACK_DEPTH = 6  # frames of a stack that name it
Snapshot = dict[str, list[int]]  # description: bytes, count
_SNAPSHOT = table({"step": COUNT, "alive": table_of(list_of(COUNT, 2))})


def record_allocations() -> None:
    """Let CUDA remember where memory is allocated."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.memory._record_memory_history(max_entries=MAX_CUDA_HISTORY)


def take() -> Snapshot:
    """Bytes and count of everything that is alive now."""
    import torch

    snapshot: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    # First, or objects that wait for the collector would look alive.
    gc.collect()
    for value in gc.get_objects():
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cpu":
            origin = f", output of {type(value.grad_fn).__name__}" if value.grad_fn is not None else ""
            name = f"tensor {list(value.shape)} {value.dtype}{origin}"
            _count(snapshot, name, value.numel() * value.element_size())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for segment in torch.cuda.memory._snapshot()["segments"]:
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    _count(snapshot, f"cuda {_stack(block)}", block["size"])
    largest = sorted(snapshot.items(), key=lambda item: -item[1][0])
    return dict(largest[:MAX_ENTRIES])


def _count(snapshot: dict[str, list[int]], name: str, size: int) -> None:
    snapshot[name][0] += size
    snapshot[name][1] += 1


def _stack(block: dict[str, Any]) -> str:
    frames = [frame for frame in block.get("frames", ()) if frame["filename"].endswith(".py")][:STACK_DEPTH]
    return " < ".join(f"{Path(frame['filename']).name}:{frame['line']} {frame['name']}" for frame in frames) or "?"


def save(folder: Path, step: int) -> None:
    """Write the snapshot of a step into a folder."""
    durable.write_bytes(folder / NAME.format(step), manifest.sealed({"step": step, "alive": take()}))


def growth(folder: Path) -> list[tuple[str, int, int]]:
    """Description, bytes and count of what grew between the first and the last snapshot of a folder; largest first.
    Raises BadData for a snapshot that was changed."""
    paths = sorted(folder.glob("memory-*.json"))
    if len(paths) < 2:
        return []
    first, last = (manifest.read_sealed(path, _SNAPSHOT)["alive"] for path in (paths[0], paths[-1]))
    changes = [
        (name, size - first.get(name, (0, 0))[0], count - first.get(name, (0, 0))[1])
        for name, (size, count) in last.items()
    ]
    return sorted((entry for entry in changes if entry[1] > 0), key=lambda entry: -entry[1])
