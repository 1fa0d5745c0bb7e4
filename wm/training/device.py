"""The device that networks are trained on."""

import torch

from wm.errors import MissingPackage
from wm.telemetry.usage import limit_cuda_memory


def pick_device(name: str) -> torch.device:
    """`name`, or for `auto` the first available of cuda, mps and cpu. Raises MissingPackage for an unavailable one."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, usable in available.items() if usable)
    if not available[name]:
        raise MissingPackage(f"--device is {name} but torch finds no such device; use --device cpu or auto.")
    limit_cuda_memory()
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """What a result records of the device it was trained on: `cpu`, `mps`, or the name of the GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
