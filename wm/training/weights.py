"""Weights as safetensors: no pickle is ever loaded, and a mismatch is reported by name.

Every load goes through `load_tensors`, which refuses values that are not finite or too large to compute with: a network
with a NaN still acts, and its score looks like any other. `save` writes none, so that what is published can be loaded.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from wm.artifacts import durable
from wm.errors import BadData, WmError

WEIGHTS = "weights.safetensors"
LARGEST_HEADER = 1 << 20  # bytes of names and shapes: our largest have 10,000
LARGEST = 1e18  # of a value: the square of a larger one is no 32-bit float
TYPES = (torch.float32, torch.int64)  # of all that is written: weights, and counts of steps


def save(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors durably (serialised in memory first: a full disk leaves no partial file). Raises WmError for values
    that `load_tensors` refuses."""
    if problem := _too_large(tensors):
        raise WmError(
            f"{path.name} was to be written but {problem}; expected finite numbers of at most {LARGEST:g}, so nothing "
            "was written: train with a smaller step size."
        )
    durable.write_bytes(path, to_bytes(tensors))


def to_bytes(tensors: dict[str, Tensor]) -> bytes:
    """Tensors of any device as a safetensors file."""
    # contiguous: safetensors writes memory as it lies, and refuses channels_last.
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def file_bytes(tensors: Mapping[str, Tensor]) -> int:
    """What a file of such tensors has at most; they may be without storage."""
    return LARGEST_HEADER + sum(tensor.nbytes for tensor in tensors.values())


def load_tensors(data: bytes, source: str) -> dict[str, Tensor]:
    """Tensors by name. Raises BadData naming `source`, also for values beyond LARGEST."""
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:  # the last three: types unknown to torch
        raise BadData(f"{source} is not a safetensors file: {str(error)[:200]}.") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in TYPES:
            raise BadData(f"{source}: {name} has numbers of type {tensor.dtype}; {_expected(TYPES)}.")
    if problem := _too_large(tensors):
        raise BadData(f"{source}: {problem}; expected finite numbers of at most {LARGEST:g}, so restore it or retrain.")
    return tensors


def require_types(tensors: Mapping[str, Tensor], expected: Mapping[str, torch.dtype], source: str) -> None:
    """Raise BadData for a tensor of another type: its values would be rounded, or overflow, when they are copied."""
    for name, tensor in tensors.items():
        if tensor.dtype != expected[name]:
            raise BadData(f"{source}: {name} has numbers of type {tensor.dtype}; {_expected([expected[name]])}.")


def _expected(types: Iterable[torch.dtype]) -> str:
    return f"expected {' or '.join(map(str, types))}, so restore it or retrain"


def _too_large(tensors: dict[str, Tensor]) -> str:
    """`bias has the value nan`, of the first tensor with a value that is not finite or beyond LARGEST; else empty."""
    for name, tensor in tensors.items():
        # `not <=`, because a NaN compares as false.
        if tensor.numel() and not tensor.abs().max() <= LARGEST:  # NaN, if there is one
            return f"{name} has the value {tensor[~(tensor.abs() <= LARGEST)][0].item():g}"
    return ""


def load_into(module: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Copy tensors into a module; every name and shape has to agree. Raises BadData with the first difference."""
    require_fit(module.state_dict(), tensors, source)
    module.load_state_dict(tensors)


def require_fit(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], source: str) -> None:
    """Raise BadData with the first difference in names, shapes or types. The `expected` ones may be without storage."""
    for name in sorted({*expected, *tensors}):
        if name not in tensors or name not in expected:
            present, absent = ("the model", source) if name in expected else (source, "the model")
            raise BadData(
                f"{name} is in {present} but not in {absent}; another version of wm wrote it, so train it again."
            )
        if tensors[name].shape != expected[name].shape:
            shapes = list(tensors[name].shape), list(expected[name].shape)
            raise BadData(
                f"{source}: {name} has shape {shapes[0]}; expected {shapes[1]}. If another version of wm wrote it, "
                "train it again."
            )
    require_types(tensors, {name: value.dtype for name, value in expected.items()}, source)
