"""Layers shared by all parts: dense blocks, the encoder and decoder of frames, and the two-hot head."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.dreamer.config import DreamerConfig

EPS = 1e-3  # of every normalisation, as in DreamerV3
# Bytes of a layer's output that a CPU computes at once: malloc returns large blocks to the system, and each use pages
# them in again. With malloc's higher thresholds (`keep_freed`) chunks shorten an update from 7.1 s to 5.7 s
# (benchmarks/dreamer_step.py).
CHUNK_BYTES = 8 << 20
HALVINGS = {32: 3, 64: 4, 96: 4, 128: 5}  # stride-2 convolutions by frame size: the last feature map is 4x4 or 6x6


def dense(inputs: int, outputs: int) -> nn.Sequential:
    """Linear, LayerNorm, SiLU."""
    return nn.Sequential(nn.Linear(inputs, outputs, bias=False), nn.LayerNorm(outputs, EPS), nn.SiLU())


def mlp(inputs: int, units: int, layers: int, outputs: int, zero: bool = False) -> nn.Sequential:
    """Dense blocks and a linear layer; with `zero` the untrained output is 0 for every input."""
    blocks = [dense(inputs if number == 0 else units, units) for number in range(layers)]
    last = nn.Linear(units, outputs)
    if zero:
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    return nn.Sequential(*blocks, last)


class PixelNorm(nn.LayerNorm):
    """LayerNorm over the channels of every pixel of (N, C, H, W); without copies in channels_last."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def _widths(config: DreamerConfig) -> list[int]:
    """Channels of the feature maps, from frame to code; each convolution halves the side."""
    return [config.depth * 2**number for number in range(HALVINGS[config.size])]


def _chunked(layers: nn.Module, x: Tensor, config: DreamerConfig) -> Tensor:
    """`layers` of x, on a CPU a few frames at a time."""
    if x.device.type != "cpu":
        output: Tensor = layers(x)
        return output
    frame_bytes = 4 * config.depth * (config.size // 2) ** 2  # of the largest feature map
    return torch.cat([layers(chunk) for chunk in x.split(max(CHUNK_BYTES // frame_bytes, 1))])


class Encoder(nn.Module):
    """(N, H, W, C) normalised frames -> (N, width)."""

    def __init__(self, config: DreamerConfig) -> None:
        super().__init__()
        self._config = config
        layers: list[nn.Module] = []
        channels = config.channels
        for width in _widths(config):
            layers += [nn.Conv2d(channels, width, 4, 2, 1, bias=False), PixelNorm(width, EPS), nn.SiLU()]
            channels = width
        self.layers = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.width = channels * (config.size >> HALVINGS[config.size]) ** 2

    def forward(self, frames: Tensor) -> Tensor:
        return _chunked(self.layers, frames.permute(0, 3, 1, 2), self._config).permute(0, 2, 3, 1).flatten(1)


class Decoder(nn.Module):
    """(N, features) -> (N, H, W, C): the frame's difference from the mean image; 0 while untrained."""

    def __init__(self, config: DreamerConfig) -> None:
        super().__init__()
        self._config, widths = config, _widths(config)
        self._side, self._width = config.size >> HALVINGS[config.size], widths[-1]
        self.input = nn.Linear(config.feature_width, self._width * self._side**2)
        layers: list[nn.Module] = []
        for inputs, outputs in zip(widths[:0:-1], widths[-2::-1], strict=True):
            layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), PixelNorm(outputs, EPS), nn.SiLU()]
        layers.append(nn.ConvTranspose2d(widths[0], config.channels, 4, 2, 1))
        for parameter in layers[-1].parameters():
            nn.init.zeros_(parameter)
        self.layers = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, features: Tensor) -> Tensor:
        x = self.input(features).view(-1, self._side, self._side, self._width).permute(0, 3, 1, 2)
        return _chunked(self.layers, x, self._config).permute(0, 2, 3, 1)


def symlog(x: Tensor) -> Tensor:
    """sign(x) ln(|x| + 1)."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of symlog."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """A scalar predicted as a distribution over symexp-spaced bins: `loss` trains it, `mean` is the prediction.

    The number of bins is odd and they are symmetric about 0, so that an untrained head predicts exactly 0.
    """

    bin_values: Tensor

    def __init__(self, inputs: int, units: int, layers: int, bins: int) -> None:
        super().__init__()
        self.layers = mlp(inputs, units, layers, bins, zero=True)
        self.register_buffer("bin_values", symexp(torch.linspace(-20, 20, bins)), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Log-probabilities of the bins, in float32."""
        return functional.log_softmax(self.layers(features).float(), -1)

    def mean(self, log_probs: Tensor) -> Tensor:
        """The mean. Probabilities of opposite bins are subtracted first: values up to 5e8 would cancel badly."""
        probs, half = log_probs.exp(), len(self.bin_values) // 2
        positive, negative = probs[..., half + 1 :], probs[..., :half].flip(-1)
        return ((positive - negative) * self.bin_values[half + 1 :]).sum(-1)

    def loss(self, log_probs: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy with the two bins that enclose the target, each weighted by its closeness."""
        target = target.clamp(self.bin_values[0], self.bin_values[-1])
        upper = torch.searchsorted(self.bin_values, target).clamp(1, len(self.bin_values) - 1)
        lower = upper - 1
        low, high = self.bin_values[lower], self.bin_values[upper]
        weight = (target - low) / (high - low)
        lower_log, upper_log = (log_probs.gather(-1, bin_.unsqueeze(-1)).squeeze(-1) for bin_ in (lower, upper))
        return -(lower_log * (1 - weight) + upper_log * weight)
