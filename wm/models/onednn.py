"""Layers whose weights do not change any more, packed once for oneDNN: for acting and for dreams.

torch packs weights anew at every call, and for products in float32 takes MKL's, which on AMD's processors have half of
oneDNN's rate. Here are the operators that torch.compile makes layers of. Where a build of torch lacks them, or weights
are not on the CPU, these are the plain layers.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Layer = Callable[[Tensor], Tensor]


def product(matrix: Tensor, bias: Tensor, rows: int) -> Layer:
    """x -> x matrix^T + bias, for x (N, inputs) in the matrix's number format; fastest where N is `rows`."""
    if not _fits(matrix):
        return lambda x: functional.linear(x, matrix, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(matrix, rows)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def convolution(layer: nn.Conv2d, weight: Tensor, shape: torch.Size, relu: bool = True) -> Layer:
    """What `layer` does, with `weight` in the place of its own, to channels_last x (N, channels, height, width);
    fastest where that is `shape`."""
    weight, bias = weight.contiguous(memory_format=torch.channels_last), layer.bias
    stride, padding, dilation, groups = layer.stride, layer.padding, layer.dilation, layer.groups
    if not _fits(weight):
        then: Layer = torch.relu_ if relu else lambda found: found
        return lambda x: then(functional.conv2d(x, weight, bias, stride, padding, dilation, groups))
    packed = torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, shape)
    name = "relu" if relu else "none"
    return lambda x: torch.ops.mkldnn._convolution_pointwise(
        x, packed, bias, padding, stride, dilation, groups, name, [], ""
    )


def _fits(weight: Tensor) -> bool:
    """Whether oneDNN is there for it."""
    if weight.device.type != "cpu" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    bf16 = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 or bf16
