"""Layers shared by all parts: dense blocks, and the encoder and decoder of frames."""

import torch
from torch import Tensor, nn

from wm.errors import UsageProblem
from wm.models.dreamer.config import DreamerConfig
from wm.models.two_hot import TwoHot

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
    """Channels of the feature maps, from frame to code; each convolution halves the side. Raises UsageProblem for a
    size that none supports."""
    if config.size not in HALVINGS:
        raise UsageProblem(f"a Dreamer takes frames with a side of {', '.join(map(str, HALVINGS))}, not {config.size}")
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
            # 4, 2, 1: kernel, stride and padding that halve a side exactly. No bias, for the normalisation has one.
            layers += [nn.Conv2d(channels, width, 4, 2, 1, bias=False), PixelNorm(width, EPS), nn.SiLU()]
            channels = width
        # channels_last is how frames arrive, and what oneDNN's convolutions take without a copy.
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
            # Zero at first, so that the decoder begins with the mean image.
            nn.init.zeros_(parameter)
        self.layers = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, features: Tensor) -> Tensor:
        x = self.input(features).view(-1, self._side, self._side, self._width).permute(0, 3, 1, 2)
        return _chunked(self.layers, x, self._config).permute(0, 2, 3, 1)


def two_hot_head(config: DreamerConfig) -> TwoHot:
    """A scalar predicted from the features; 0 while untrained."""
    return TwoHot(mlp(config.feature_width, config.units, config.layers, config.bins, zero=True), config.bins)
