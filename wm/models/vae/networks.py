"""V: a convolutional VAE for any frame size that is a multiple of 16, in three architectures.

`PaperVae`, that of Ha & Schmidhuber (2018):
- Encoder: 4x4 convolutions with stride 2 and no padding, 32, 64, 128, 256, ... channels, while 4 pixels are left.
- Decoder: the encoder's features as one pixel, then transposed convolutions with stride 2 back to the frame. Their
  kernels are the most equal ones that reach the size: 5, 5, 6, 6 at 64 pixels, the paper's.
- At 64 pixels, 3 channels and 32 latents it has the paper's 4,348,547 parameters.
`SmallVae`, a twentieth of that: space becomes depth first (4x4 pixels are one with 48 channels), so that no layer works
at full size, and depth becomes space last (Shi et al. 2016).
`AttentiveVae` has the small one's decoder, and its encoder has two parts: the scene, as in the small one, and objects.
These are features of 2x2 pixels, averaged over the image by each head's softmax over positions, and the mean position
itself (spatial softmax, Finn et al. 2016). An object's features are then the same wherever it is: with 48 episodes a
supervised network decodes a lander's angle with R2 0.98, and with the small encoder below 0.
All:
- Encoder and decoder work on the difference from the data's mean image, which is a constant. The encoder's input is
  (image - mean) / std, and the decoder adds the mean's logits before the sigmoid. So training starts at the mean
  image's error, with small moving objects prominent, instead of spending its first thousand steps on the background.
- q(z|frame) starts narrow (log-variance -3), or its noise would hide the encoder's first signal.
Shapes: B batch, S frame side, C channels, Z latents. Frames come in as (B, S, S, C) uint8.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.errors import UsageProblem

MAX_DEVIATION = 10.0  # of the encoder's input, in units of the data's std
LOGVAR = (-12.0, 4.0)  # without an upper bound one extreme step makes the KL overflow
# Channels of the small network. Its worst R2 on Pong is 0.59, the paper's network has 0.74, with the
# same loss (decision 0010).
SMALL_WIDTH = 32
FEATURES, HEADS = 24, 8  # of the attentive one
FRAMES_PER_BATCH = 256  # when the normalisation is fitted: as floats all at once would take four times the memory


class Vae(nn.Module, ABC):
    """Base of all architectures. `mean_image` (C, S, S) is that of the data, `image_std` the rms difference of images
    from it. `decoder_width` is the width between the latents and the decoder's layers; `encoder_width` that between the
    encoder's layers and the latents, if it differs."""

    mean_image: Tensor
    image_std: Tensor

    def __init__(self, size: int, channels: int, latent: int, decoder_width: int, encoder_width: int = 0) -> None:
        super().__init__()
        self.size, self.channels, self.latent = size, channels, latent
        # Half gray until the data is measured.
        self.register_buffer("mean_image", torch.full((channels, size, size), 0.5))
        self.register_buffer("image_std", torch.ones(()))
        self.mean = nn.Linear(encoder_width or decoder_width, latent)
        self.logvar = nn.Linear(encoder_width or decoder_width, latent)
        # A deviation of 0.22 at first: with 1, the noise hides what z holds from the decoder.
        nn.init.constant_(self.logvar.bias, -3.0)
        self.expand = nn.Linear(latent, decoder_width)

    @abstractmethod
    def _encoder_features(self, x: Tensor) -> Tensor:
        """(B, C, S, S) -> (B, encoder_width)."""

    @abstractmethod
    def _decoder_logits(self, features: Tensor) -> Tensor:
        """(B, decoder_width) -> (B, C, S, S), to be added to the mean image's logits."""

    def fit_normalization(self, frames: Tensor) -> None:
        """Set mean image and std from a sample of the data, (N, S, S, C) uint8."""
        parts = frames.split(FRAMES_PER_BATCH)
        self.mean_image.copy_(torch.stack([to_images(part).sum(0) for part in parts]).sum(0) / len(frames))
        squares = torch.stack([(to_images(part) - self.mean_image).square().sum() for part in parts]).sum()
        # Of all-equal frames the deviation is 0.
        self.image_std.copy_((squares / frames.numel()).sqrt().clamp(min=1e-3))

    def encode(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, S, C) uint8 -> mean and log-variance of q(z|frame), (B, Z) each, float32."""
        return self.posterior(to_images(frames))

    def posterior(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The same for (B, C, S, S) in [0, 1]."""
        normalised = (images - self.mean_image) / self.image_std
        x = self._encoder_features(normalised.clamp(-MAX_DEVIATION, MAX_DEVIATION))
        return self.mean(x).float(), self.logvar(x).float().clamp(*LOGVAR)

    def decode(self, z: Tensor) -> Tensor:
        """(B, Z) -> (B, C, S, S) in [0, 1], float32."""
        # logit of 0 or 1 is infinite; a thousandth is a quarter of a level.
        return torch.sigmoid(self._decoder_logits(self.expand(z)).float() + torch.logit(self.mean_image, eps=1e-3))


class SmallVae(Vae):
    """Space to depth, three convolutions, and back."""

    def __init__(self, size: int, channels: int, latent: int) -> None:
        width, side = SMALL_WIDTH, size // 16
        super().__init__(size, channels, latent, 2 * width * side * side)
        self.encoder = nn.Sequential(
            # 4x4 pixels become channels: the first convolution then works on a sixteenth of the positions.
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

    def _encoder_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.encoder(x)
        return features

    def _decoder_logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.decoder(features)
        return logits


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
    """Features of 2x2 pixels; from them the scene, by convolutions with strides, and objects, by attention."""

    positions: Tensor

    def __init__(self, size: int, channels: int, latent: int) -> None:
        width, side = SMALL_WIDTH, size // 16
        scene, objects = 2 * width * side * side, HEADS * (FEATURES + 2)
        super().__init__(size, channels, latent, scene, scene + objects)
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
        axis = torch.linspace(-1, 1, size // 2)
        positions = torch.cartesian_prod(axis, axis).flip(1)  # x, y of every position, rows of the image first
        self.register_buffer("positions", positions, persistent=False)

    def _encoder_features(self, x: Tensor) -> Tensor:
        features = self.features(x)
        weights = self.attention(features).flatten(2).softmax(-1)
        objects = weights @ features.flatten(2).mT, weights @ self.positions.to(weights.dtype)
        return torch.cat([self.scene(features), *(part.flatten(1) for part in objects)], 1)

    def _decoder_logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.decoder(features)
        return logits


class PaperVae(Vae):
    """The paper's V. Its weights are kept channels_last."""

    def __init__(self, size: int, channels: int, latent: int) -> None:
        sides = encoder_sides(size)
        # The paper's widths, 32 to 256, at 64 pixels.
        widths = [32 << layer for layer in range(len(sides))]
        features = widths[-1] * sides[-1] ** 2
        super().__init__(size, channels, latent, features)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(inputs, outputs, 4, 2) for inputs, outputs in zip([channels, *widths[:-1]], widths, strict=True)
        )
        kernels = decoder_kernels(size, len(sides))
        decoder_widths = [features, *reversed(widths[:-1]), channels]
        self.deconvolutions = nn.ModuleList(
            nn.ConvTranspose2d(inputs, outputs, kernel, 2)
            for (inputs, outputs), kernel in zip(itertools.pairwise(decoder_widths), kernels, strict=True)
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.deconvolutions[0].to(memory_format=torch.contiguous_format)  # type: ignore[call-overload] # a matrix, below

    def _encoder_features(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = functional.relu(convolution(x))
        return x.flatten(1)

    def _decoder_logits(self, features: Tensor) -> Tensor:
        first = self.deconvolutions[0]
        assert isinstance(first, nn.ConvTranspose2d)
        assert first.bias is not None
        # A transposed convolution of a single pixel is a matrix product, and a much faster one.
        kernel, bias = first.weight, first.bias
        x = (features @ kernel.flatten(1)).unflatten(1, kernel.shape[1:]) + bias[:, None, None]
        for deconvolution in list(self.deconvolutions)[1:]:
            x = deconvolution(functional.relu(x).contiguous(memory_format=torch.channels_last))
        return x


def build(network: str, size: int, channels: int, latent: int) -> Vae:
    """`small`, `attentive` or `paper`. Raises UsageProblem for a size that none supports."""
    # Sides that both the strides of the small network and the paper's kernels reach.
    if size % 16 or not 32 <= size <= 128:
        raise UsageProblem(f"V needs frames whose side is a multiple of 16 from 32 to 128; these have {size}.")
    networks: dict[str, Callable[[int, int, int], Vae]]
    networks = {"small": SmallVae, "attentive": AttentiveVae, "paper": PaperVae}
    return networks[network](size, channels, latent)


def encoder_sides(size: int) -> list[int]:
    """Side after each convolution: 64 -> [31, 14, 6, 2]."""
    sides = []
    while size >= 4:
        size = (size - 4) // 2 + 1
        sides.append(size)
    return sides


def decoder_kernels(size: int, layers: int) -> tuple[int, ...]:
    """Kernels of the transposed convolutions from one pixel to `size`: the most equal, smallest first."""
    base = 2**layers - 2
    candidates = [
        kernels
        # The paper's kernels are 5 and 6; 3 to 8 reach every allowed side.
        for kernels in itertools.combinations_with_replacement(range(3, 9), layers)
        if sum(kernel << (layers - 1 - place) for place, kernel in enumerate(kernels)) - base == size
    ]
    return min(candidates, key=lambda kernels: (kernels[-1] - kernels[0], kernels))


def to_images(frames: Tensor) -> Tensor:
    """(B, S, S, C) uint8 -> (B, C, S, S) in [0, 1]: NHWC memory is channels_last already, so nothing is copied."""
    return frames.permute(0, 3, 1, 2).float() / 255


def to_frames(images: Tensor) -> Tensor:
    """(B, C, S, S) in [0, 1] -> (B, S, S, C) uint8."""
    return (images * 255 + 0.5).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
