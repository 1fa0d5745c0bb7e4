"""Weights as safetensors: no pickle is ever loaded, and a mismatch is reported by name."""

from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from wm.artifacts import durable
from wm.errors import BadData

WEIGHTS = "weights.safetensors"


def save(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors durably (serialised in memory first: a full disk leaves no partial file)."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    durable.write_bytes(path, safetensors.torch.save(contiguous))


def load_tensors(data: bytes, source: str) -> dict[str, Tensor]:
    """Tensors by name. Raises BadData naming `source`."""
    try:
        return safetensors.torch.load(data)
    except SafetensorError as error:
        raise BadData(f"{source} is not a safetensors file: {error}.") from None


def load_into(module: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Copy tensors into a module; every name and shape has to agree. Raises BadData with the first difference."""
    expected = module.state_dict()
    for name in sorted({*expected, *tensors}):
        if name not in tensors or name not in expected:
            present, absent = ("the model", source) if name in expected else (source, "the model")
            raise BadData(f"{name} is in {present} but not in {absent}; they are of different versions.")
        if tensors[name].shape != expected[name].shape:
            shapes = list(tensors[name].shape), list(expected[name].shape)
            raise BadData(f"{source}: {name} has shape {shapes[0]}; expected {shapes[1]}.")
    module.load_state_dict(tensors)
