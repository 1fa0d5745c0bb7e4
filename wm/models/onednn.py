"""Layers for inference whose weights are packed once for oneDNN.

torch packs weights at every call, and multiplies float32 with MKL: 56 GFLOP/s where oneDNN reaches 127 (half a Zen 5
core). 256 dreams in float32 run 187,000 instead of 104,000 steps/s. These are the operators that torch.compile uses for
layers. Where a build of torch lacks them, or weights are not on the CPU, they are the plain layers.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Layer = Callable[[Tensor], Tensor]


def linear(matrix: Tensor, bias: Tensor, rows: int) -> Layer:
    """x -> x matrix^T + bias, for x (N, inputs) in the matrix's number format; fastest where N is `rows`."""
    if not _supported(matrix):
        return lambda x: functional.linear(x, matrix, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(matrix, rows)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def convolution(layer: nn.Conv2d, weight: Tensor, shape: torch.Size, relu: bool = True) -> Layer:
    """`layer` with `weight` instead of its own, for channels_last x (N, channels, height, width); fastest where that
    is `shape`."""
    # The layout that oneDNN packs from; another would be converted at every call.
    weight, bias = weight.contiguous(memory_format=torch.channels_last), layer.bias
    stride, padding, dilation, groups = layer.stride, layer.padding, layer.dilation, layer.groups
    if not _supported(weight):
        activation: Layer = torch.relu_ if relu else lambda x: x
        return lambda x: activation(functional.conv2d(x, weight, bias, stride, padding, dilation, groups))
    packed = torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, shape)
    name = "relu" if relu else "none"
    return lambda x: torch.ops.mkldnn._convolution_pointwise(
        x, packed, bias, padding, stride, dilation, groups, name, [], ""
    )


def _supported(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    # oneDNN says itself whether it has bf16 on this CPU; without it the plain layers compute.
    bf16 = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 or bf16
