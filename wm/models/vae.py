"""V: the convolutional VAE of Ha & Schmidhuber (2018), for any frame size that is a multiple of 16.

- Encoder: 4x4 convolutions with stride 2 and no padding, 32, 64, 128, 256, ... channels, while 4 pixels are left.
- Decoder: the encoder's features as one pixel, then transposed convolutions with stride 2 back to the frame. Their
  kernels are the most even ones that reach the size: 5, 5, 6, 6 at 64 pixels, the paper's.
- At 64 pixels, 3 channels and 32 latents it has the paper's 4,348,547 parameters.
- Both ends work on the difference from the data's mean picture, which is a constant: the encoder sees (frame - mean) /
  rms, the decoder adds the mean's logits before the sigmoid. So training starts at the mean picture's error, and with
  small things that move standing out, instead of spending its first thousand steps on the background.
- q(z|frame) starts narrow (log-variance -3), or its noise would drown the encoder's first signal.
- Loss: weighted summed squared error + max(KL, 0.5 nats per latent); with weights 1 it is the paper's.
Shapes: B batch, S frame side, C channels, Z latents. Frames come in as (B, S, S, C) uint8.
"""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.errors import UsageProblem

MOST_CONTRAST = 10.0
LOGVAR = (-12.0, 4.0)  # without a ceiling one wild step makes the divergence overflow


class VaeLoss(NamedTuple):
    """Means over the batch: `total` to minimise, plain squared `error` summed over a frame, `divergence` (nats)."""

    total: Tensor
    error: Tensor
    divergence: Tensor


def encoder_sides(size: int) -> list[int]:
    """Side after each convolution: 64 -> [31, 14, 6, 2]."""
    sides = []
    while size >= 4:
        size = (size - 4) // 2 + 1
        sides.append(size)
    return sides


def decoder_kernels(size: int, layers: int) -> tuple[int, ...]:
    """Kernels of the transposed convolutions that grow one pixel to `size`: the most even, smallest first."""
    base = 2**layers - 2
    fitting = [
        kernels
        for kernels in itertools.combinations_with_replacement(range(3, 9), layers)
        if sum(kernel << (layers - 1 - place) for place, kernel in enumerate(kernels)) - base == size
    ]
    return min(fitting, key=lambda kernels: (kernels[-1] - kernels[0], kernels))


class ConvVae(nn.Module):
    """The paper's V. `background` (C, S, S) is the mean picture, `contrast` the rms difference of frames from it."""

    background: Tensor
    contrast: Tensor

    def __init__(self, size: int, channels: int, latent: int) -> None:
        super().__init__()
        if size % 16 or not 32 <= size <= 128:
            raise UsageProblem(f"V needs frames whose side is a multiple of 16 from 32 to 128; these have {size}.")
        self.size, self.channels, self.latent = size, channels, latent
        sides = encoder_sides(size)
        widths = [32 << layer for layer in range(len(sides))]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 4, 2) for before, after in zip([channels, *widths[:-1]], widths, strict=True)
        )
        self.register_buffer("background", torch.full((channels, size, size), 0.5))
        self.register_buffer("contrast", torch.ones(()))
        features = widths[-1] * sides[-1] ** 2
        self.mean = nn.Linear(features, latent)
        self.logvar = nn.Linear(features, latent)
        nn.init.constant_(self.logvar.bias, -3.0)
        self.expand = nn.Linear(latent, features)
        kernels = decoder_kernels(size, len(sides))
        narrowing = [features, *reversed(widths[:-1]), channels]
        self.deconvolutions = nn.ModuleList(
            nn.ConvTranspose2d(before, after, kernel, 2)
            for (before, after), kernel in zip(itertools.pairwise(narrowing), kernels, strict=True)
        )

    def look_at(self, frames: Tensor) -> None:
        """Take mean picture and contrast from a sample of the data, (N, S, S, C) uint8."""
        pictures = _pictures(frames)
        self.background.copy_(pictures.mean(0))
        self.contrast.copy_((pictures - self.background).square().mean().sqrt().clamp(min=1e-3))

    def encode(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, S, C) uint8 -> mean and log-variance of q(z|frame), (B, Z) each."""
        x = ((_pictures(frames) - self.background) / self.contrast).clamp(-MOST_CONTRAST, MOST_CONTRAST)
        for convolution in self.convolutions:
            x = functional.relu(convolution(x))
        x = x.flatten(1)
        return self.mean(x), self.logvar(x).clamp(*LOGVAR)

    def decode(self, z: Tensor) -> Tensor:
        """(B, Z) -> (B, C, S, S) in [0, 1]."""
        x = self.expand(z)
        first = self.deconvolutions[0]
        assert isinstance(first, nn.ConvTranspose2d)
        assert first.bias is not None
        # A transposed convolution of a single pixel is a matrix product, and a much faster one.
        kernel, bias = first.weight, first.bias
        x = (x @ kernel.flatten(1)).unflatten(1, kernel.shape[1:]) + bias[:, None, None]
        for deconvolution in list(self.deconvolutions)[1:]:
            x = deconvolution(functional.relu(x).contiguous(memory_format=torch.channels_last))
        return torch.sigmoid(x + torch.logit(self.background, eps=1e-3))

    def loss(self, frames: Tensor, noise: Tensor, weights: Tensor, kl_tolerance: float) -> VaeLoss:
        """The loss of (B, S, S, C) uint8 frames with (B, Z) standard normal noise.

        `weights`, which broadcasts to (B, C, S, S), multiplies the squared error of every pixel; the paper's is 1.
        """
        mean, logvar = self.encode(frames)
        drawn = self.decode(mean + noise * torch.exp(0.5 * logvar))
        square = (drawn - _pictures(frames)).square()
        error = (weights * square).sum(dim=(1, 2, 3)).mean()
        divergence = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum(dim=1)
        floored = divergence.clamp(min=kl_tolerance * self.latent).mean()
        plain = square.detach().sum(dim=(1, 2, 3)).mean()
        return VaeLoss(error + floored, plain, divergence.mean())


def _pictures(frames: Tensor) -> Tensor:
    """(B, S, S, C) uint8 -> (B, C, S, S) in [0, 1]: NHWC memory is channels_last already, so nothing moves."""
    return frames.permute(0, 3, 1, 2).float() / 255


def to_frames(pictures: Tensor) -> Tensor:
    """(B, C, S, S) in [0, 1] -> (B, S, S, C) uint8."""
    return (pictures * 255 + 0.5).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
