"""Layers that all parts share: dense blocks, convolutions for frames and back, and the two-hot head."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.dreamer.config import DreamerConfig

EPS = 1e-3
PIECE = 8 << 20  # bytes of a layer's output that go through the CPU at once: larger ones are paged in anew every time


def dense(inputs: int, outputs: int) -> nn.Sequential:
    """Linear, LayerNorm, SiLU."""
    return nn.Sequential(nn.Linear(inputs, outputs, bias=False), nn.LayerNorm(outputs, EPS), nn.SiLU())


def mlp(inputs: int, units: int, layers: int, outputs: int, zero: bool = False) -> nn.Sequential:
    """Dense blocks and a linear layer; `zero` makes its first guess 0 whatever it sees."""
    blocks = [dense(inputs if number == 0 else units, units) for number in range(layers)]
    last = nn.Linear(units, outputs)
    if zero:
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    return nn.Sequential(*blocks, last)


class PixelNorm(nn.LayerNorm):
    """LayerNorm over the channels of every pixel of (N, C, H, W); free of copies in channels_last."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def _strides(form: DreamerConfig) -> list[tuple[int, int, int, int]]:
    """(kernel, stride, padding, channels) of every convolution, from frame to code."""
    if form.encoder == "nature":  # Mnih et al. 2015, for 84 x 84
        return [(8, 4, 0, 32), (4, 2, 0, 64), (3, 1, 0, 64)]
    halvings = {32: 3, 64: 4, 96: 4, 128: 5}[form.size]
    return [(4, 2, 1, form.depth * 2**number) for number in range(halvings)]


def _side(form: DreamerConfig) -> int:
    side = form.size
    for kernel, stride, padding, _ in _strides(form):
        side = (side + 2 * padding - kernel) // stride + 1
    return side


def _in_pieces(layers: nn.Module, x: Tensor, form: DreamerConfig) -> Tensor:
    """`layers` of x, on a CPU a few frames at a time."""
    if x.device.type != "cpu":
        found: Tensor = layers(x)
        return found
    kernel, stride, padding, channels = _strides(form)[0]
    side = (form.size + 2 * padding - kernel) // stride + 1
    return torch.cat([layers(part) for part in x.split(max(PIECE // (4 * channels * side**2), 1))])


class Encoder(nn.Module):
    """(N, H, W, P) differences from the mean picture -> (N, width)."""

    def __init__(self, form: DreamerConfig) -> None:
        super().__init__()
        self._form = form
        layers: list[nn.Module] = []
        planes = form.planes
        for kernel, stride, padding, channels in _strides(form):
            layers += [nn.Conv2d(planes, channels, kernel, stride, padding, bias=False), PixelNorm(channels, EPS)]
            layers.append(nn.SiLU())
            planes = channels
        self.layers = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.width = planes * _side(form) ** 2

    def forward(self, frames: Tensor) -> Tensor:
        return _in_pieces(self.layers, frames.permute(0, 3, 1, 2), self._form).permute(0, 2, 3, 1).flatten(1)


class Decoder(nn.Module):
    """(N, features) -> (N, H, W, C): how the newest frame differs from the mean picture; untrained it does not."""

    def __init__(self, form: DreamerConfig) -> None:
        super().__init__()
        strides, self._form = _strides(form), form
        self._side, self._planes = _side(form), strides[-1][-1]
        self.enter = nn.Linear(form.feature, self._planes * self._side**2)
        layers: list[nn.Module] = []
        for number in range(len(strides) - 1, -1, -1):
            kernel, stride, padding, planes = strides[number]
            last = number == 0
            channels = form.channels if last else strides[number - 1][-1]
            layers.append(nn.ConvTranspose2d(planes, channels, kernel, stride, padding, bias=last))
            if not last:
                layers += [PixelNorm(channels, EPS), nn.SiLU()]
        for parameter in layers[-1].parameters():
            nn.init.zeros_(parameter)
        self.layers = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, features: Tensor) -> Tensor:
        x = self.enter(features).view(-1, self._side, self._side, self._planes).permute(0, 3, 1, 2)
        return _in_pieces(self.layers, x, self._form).permute(0, 2, 3, 1)


def symlog(x: Tensor) -> Tensor:
    """sign(x) ln(|x| + 1)."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of symlog."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """A number told as a distribution over bins that are symexp-spaced: `loss` to learn it, `value` its mean.

    An odd number of bins, symmetric about 0, so that the untrained head says exactly 0.
    """

    edges: Tensor

    def __init__(self, inputs: int, units: int, layers: int, bins: int) -> None:
        super().__init__()
        self.layers = mlp(inputs, units, layers, bins, zero=True)
        self.register_buffer("edges", symexp(torch.linspace(-20, 20, bins)), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Log-probabilities of the bins, in float32."""
        return functional.log_softmax(self.layers(features).float(), -1)

    def value(self, logs: Tensor) -> Tensor:
        """The mean. Chances of opposite bins are subtracted first: their values reach 5e8 and would cancel badly."""
        chances, half = logs.exp(), len(self.edges) // 2
        above, below = chances[..., half + 1 :], chances[..., :half].flip(-1)
        return ((above - below) * self.edges[half + 1 :]).sum(-1)

    def loss(self, logs: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy with the two bins that enclose the target, each in proportion to its closeness."""
        target = target.clamp(self.edges[0], self.edges[-1])
        upper = torch.searchsorted(self.edges, target).clamp(1, len(self.edges) - 1)
        lower = upper - 1
        low, high = self.edges[lower], self.edges[upper]
        share = (target - low) / (high - low)
        chosen = [logs.gather(-1, place.unsqueeze(-1)).squeeze(-1) for place in (lower, upper)]
        return -(chosen[0] * (1 - share) + chosen[1] * share)
