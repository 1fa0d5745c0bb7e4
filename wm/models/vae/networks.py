"""V: a convolutional VAE for any frame size that is a multiple of 16, in three forms.

`PaperVae`, that of Ha & Schmidhuber (2018):
- Encoder: 4x4 convolutions with stride 2 and no padding, 32, 64, 128, 256, ... channels, while 4 pixels are left.
- Decoder: the encoder's features as one pixel, then transposed convolutions with stride 2 back to the frame. Their
  kernels are the most even ones that reach the size: 5, 5, 6, 6 at 64 pixels, the paper's.
- At 64 pixels, 3 channels and 32 latents it has the paper's 4,348,547 parameters.
`SmallVae`, a twentieth of that: space becomes depth first (4x4 pixels are one with 48 channels), so that no layer works
at full size, and depth becomes space last (Shi et al. 2016).
`AttentiveVae` draws as the small one does and sees the same scene, and beside it things: features of 2x2 pixels, each
head's mean over the picture weighted by a softmax over places, and the weighted mean place (spatial softmax, Finn et
al. 2016). What a thing looks like is then seen alike wherever it is: a lander's tilt, in fifty games.
All:
- Both ends work on the difference from the data's mean picture, which is a constant: the encoder sees (frame - mean) /
  rms, the decoder adds the mean's logits before the sigmoid. So training starts at the mean picture's error, and with
  small things that move standing out, instead of spending its first thousand steps on the background.
- q(z|frame) starts narrow (log-variance -3), or its noise would drown the encoder's first signal.
Shapes: B batch, S frame side, C channels, Z latents. Frames come in as (B, S, S, C) uint8.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.errors import UsageProblem

MAX_CONTRAST = 10.0
LOGVAR = (-12.0, 4.0)  # without a ceiling one wild step makes the divergence overflow
SMALL_WIDTH = 32
FEATURES, HEADS = 24, 8  # of the attentive one


class Vae(nn.Module, ABC):
    """What both forms share. `background` (C, S, S) is the mean picture, `contrast` the rms difference of frames from
    it; `drawn` is the width between the latents and the decoder's layers, `seen` that between the encoder's and the
    latents, if it differs."""

    background: Tensor
    contrast: Tensor

    def __init__(self, size: int, channels: int, latent: int, drawn: int, seen: int = 0) -> None:
        super().__init__()
        self.size, self.channels, self.latent = size, channels, latent
        self.register_buffer("background", torch.full((channels, size, size), 0.5))
        self.register_buffer("contrast", torch.ones(()))
        self.mean = nn.Linear(seen or drawn, latent)
        self.logvar = nn.Linear(seen or drawn, latent)
        nn.init.constant_(self.logvar.bias, -3.0)
        self.expand = nn.Linear(latent, drawn)

    @abstractmethod
    def _see(self, x: Tensor) -> Tensor:
        """(B, C, S, S) -> (B, seen)."""

    @abstractmethod
    def _draw(self, features: Tensor) -> Tensor:
        """(B, drawn) -> (B, C, S, S), to be added to the mean picture's logits."""

    def look_at(self, frames: Tensor) -> None:
        """Take mean picture and contrast from a sample of the data, (N, S, S, C) uint8."""
        parts = frames.split(256)  # as floats all of them at once would take four times the memory
        self.background.copy_(torch.stack([pictures(part).sum(0) for part in parts]).sum(0) / len(frames))
        squares = torch.stack([(pictures(part) - self.background).square().sum() for part in parts]).sum()
        self.contrast.copy_((squares / frames.numel()).sqrt().clamp(min=1e-3))

    def encode(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, S, C) uint8 -> mean and log-variance of q(z|frame), (B, Z) each, float32."""
        return self.posterior(pictures(frames))

    def posterior(self, shown: Tensor) -> tuple[Tensor, Tensor]:
        """The same for (B, C, S, S) in [0, 1]."""
        x = self._see(((shown - self.background) / self.contrast).clamp(-MAX_CONTRAST, MAX_CONTRAST))
        return self.mean(x).float(), self.logvar(x).float().clamp(*LOGVAR)

    def decode(self, z: Tensor) -> Tensor:
        """(B, Z) -> (B, C, S, S) in [0, 1], float32."""
        return torch.sigmoid(self._draw(self.expand(z)).float() + torch.logit(self.background, eps=1e-3))


class SmallVae(Vae):
    """Space to depth, three convolutions, and back."""

    def __init__(self, size: int, channels: int, latent: int) -> None:
        width, side = SMALL_WIDTH, size // 16
        super().__init__(size, channels, latent, 2 * width * side * side)
        self.encoder = nn.Sequential(
            nn.PixelUnshuffle(4),
            nn.Conv2d(16 * channels, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 4, 2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, 2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.decoder = _small_decoder(size, channels)

    def _see(self, x: Tensor) -> Tensor:
        seen: Tensor = self.encoder(x)
        return seen

    def _draw(self, features: Tensor) -> Tensor:
        drawn: Tensor = self.decoder(features)
        return drawn


def _small_decoder(size: int, channels: int) -> nn.Sequential:
    width, side = SMALL_WIDTH, size // 16
    return nn.Sequential(
        nn.Unflatten(1, (2 * width, side, side)),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, 2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(width, width, 4, 2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 16 * channels, 3, padding=1),
        nn.PixelShuffle(4),
    )


class AttentiveVae(Vae):
    """Features of 2x2 pixels; from them the scene, by convolutions with strides, and things, by attention."""

    places: Tensor

    def __init__(self, size: int, channels: int, latent: int) -> None:
        width, side = SMALL_WIDTH, size // 16
        scene, things = 2 * width * side * side, HEADS * (FEATURES + 2)
        super().__init__(size, channels, latent, scene, scene + things)
        self.features = nn.Sequential(
            nn.PixelUnshuffle(2),
            nn.Conv2d(4 * channels, FEATURES, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(FEATURES, FEATURES, 3, padding=1),
            nn.ReLU(),
        )
        self.scene = nn.Sequential(
            nn.Conv2d(FEATURES, width, 4, 4),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, 2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.attention = nn.Conv2d(FEATURES, HEADS, 1)
        self.decoder = _small_decoder(size, channels)
        along = torch.linspace(-1, 1, size // 2)
        places = torch.cartesian_prod(along, along).flip(1)  # x, y of every place, rows of the picture first
        self.register_buffer("places", places, persistent=False)

    def _see(self, x: Tensor) -> Tensor:
        features = self.features(x)
        weights = self.attention(features).flatten(2).softmax(-1)
        things = weights @ features.flatten(2).mT, weights @ self.places.to(weights.dtype)
        return torch.cat([self.scene(features), *(thing.flatten(1) for thing in things)], 1)

    def _draw(self, features: Tensor) -> Tensor:
        drawn: Tensor = self.decoder(features)
        return drawn


class PaperVae(Vae):
    """The paper's V. Its weights are kept channels_last."""

    def __init__(self, size: int, channels: int, latent: int) -> None:
        sides = encoder_sides(size)
        widths = [32 << layer for layer in range(len(sides))]
        features = widths[-1] * sides[-1] ** 2
        super().__init__(size, channels, latent, features)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 4, 2) for before, after in zip([channels, *widths[:-1]], widths, strict=True)
        )
        kernels = decoder_kernels(size, len(sides))
        narrowing = [features, *reversed(widths[:-1]), channels]
        self.deconvolutions = nn.ModuleList(
            nn.ConvTranspose2d(before, after, kernel, 2)
            for (before, after), kernel in zip(itertools.pairwise(narrowing), kernels, strict=True)
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.deconvolutions[0].to(memory_format=torch.contiguous_format)  # type: ignore[call-overload] # a matrix, below

    def _see(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = functional.relu(convolution(x))
        return x.flatten(1)

    def _draw(self, features: Tensor) -> Tensor:
        first = self.deconvolutions[0]
        assert isinstance(first, nn.ConvTranspose2d)
        assert first.bias is not None
        # A transposed convolution of a single pixel is a matrix product, and a much faster one.
        kernel, bias = first.weight, first.bias
        x = (features @ kernel.flatten(1)).unflatten(1, kernel.shape[1:]) + bias[:, None, None]
        for deconvolution in list(self.deconvolutions)[1:]:
            x = deconvolution(functional.relu(x).contiguous(memory_format=torch.channels_last))
        return x


def build(kind: str, size: int, channels: int, latent: int) -> Vae:
    """`small`, `attentive` or `paper`. Raises UsageProblem for a size none can have."""
    if size % 16 or not 32 <= size <= 128:
        raise UsageProblem(f"V needs frames whose side is a multiple of 16 from 32 to 128; these have {size}.")
    kinds: dict[str, Callable[[int, int, int], Vae]]
    kinds = {"small": SmallVae, "attentive": AttentiveVae, "paper": PaperVae}
    return kinds[kind](size, channels, latent)


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


def pictures(frames: Tensor) -> Tensor:
    """(B, S, S, C) uint8 -> (B, C, S, S) in [0, 1]: NHWC memory is channels_last already, so nothing moves."""
    return frames.permute(0, 3, 1, 2).float() / 255


def to_frames(pictures: Tensor) -> Tensor:
    """(B, C, S, S) in [0, 1] -> (B, S, S, C) uint8."""
    return (pictures * 255 + 0.5).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
