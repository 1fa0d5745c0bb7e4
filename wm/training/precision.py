"""Number formats of matrix products. Weights, losses and the optimizer stay in float32."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from wm.errors import UsageProblem

_FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """A number format on a device."""

    name: str
    device: torch.device

    @property
    def dtype(self) -> torch.dtype:
        """The format as torch knows it."""
        return _FORMATS[self.name]

    @property
    def scaled(self) -> bool:
        """Whether the loss has to be scaled: float16's small gradients would vanish."""
        return self.name == "fp16"

    def cast(self) -> AbstractContextManager[None]:
        """A context in which matrix products and convolutions use this format."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.name != "fp32")

    def require_lstm(self) -> None:
        """Raise UsageProblem where torch has no LSTM in this format, as on CPUs without AVX-512."""
        if self.name == "fp32" or self.device.type != "cpu":
            return
        try:
            with self.cast():
                nn.LSTM(1, 1)(torch.zeros(1, 1, 1))
        except RuntimeError:
            raise UsageProblem(
                f"--precision is {self.name!r} but torch has no LSTM in that format on this CPU; leave the option out, "
                "or give fp32."
            ) from None


def has_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16: without them it is slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device.type == "cpu" and supported is not None and bool(supported())


def pick(name: str, device: torch.device) -> Precision:
    """The format of this name; `auto` is bf16 where the device has instructions for it, else fp32. Raises UsageProblem
    for a format that the device does not support."""
    if name == "auto":
        name = "bf16" if has_bf16(device) else "fp32"
    if name != "fp32" and device.type == "mps":
        raise UsageProblem(f"--precision is {name!r} but training on mps is in fp32 only; leave the option out.")
    return Precision(name, device)


def allow_tf32(allowed: bool, device: torch.device) -> None:
    """Let a CUDA device multiply float32 with TF32's shorter mantissa."""
    # TF32 has ten bits of mantissa; sums stay in float32.
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        torch.backends.cudnn.allow_tf32 = allowed
