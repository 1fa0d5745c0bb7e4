"""V's encoder laid out once, for acting: a few frames at a time, in float32, the mean of z alone.

Frames come as (height, width, channels) and the convolutions' weights are kept that way too. The small V's step from
space to depth is then a copy of whole pixels, and its weights are put into that order. With eight frames this takes
two thirds of the time of `Vae.encode`, whose means it gives to the last few bits.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from wm.models.vae import MOST_CONTRAST, SmallVae, Vae

BLOCK = 4  # pixels on a side that become the channels of one


class Eye:
    """Sees with a V whose weights do not change any more."""

    def __init__(self, vae: Vae) -> None:
        self._vae = vae
        self._scale = 1 / (255 * vae.contrast)
        self._offset = (vae.background / vae.contrast).permute(1, 2, 0).contiguous()
        self._layers: list[tuple[nn.Conv2d, Tensor]] = []
        if isinstance(vae, SmallVae):
            convolutions = [layer for layer in vae.encoder if isinstance(layer, nn.Conv2d)]
            first, *others = convolutions
            blocks = first.weight.unflatten(1, (vae.channels, BLOCK, BLOCK)).permute(0, 2, 3, 1, 4, 5)
            weights = [blocks.flatten(1, 3), *(layer.weight for layer in others)]
            packed = [weight.contiguous(memory_format=torch.channels_last) for weight in weights]
            self._layers = list(zip(convolutions, packed, strict=True))

    @torch.inference_mode()
    def see(self, frames: Tensor) -> Tensor:
        """(B, S, S, C) uint8 -> mean z (B, Z), float32."""
        if not self._layers:
            return self._vae.encode(frames)[0]
        x = (frames.float() * self._scale - self._offset).clamp_(-MOST_CONTRAST, MOST_CONTRAST)
        side = self._vae.size // BLOCK
        x = x.unflatten(1, (side, BLOCK)).unflatten(3, (side, BLOCK)).transpose(2, 3).flatten(3, 5).permute(0, 3, 1, 2)
        for layer, weight in self._layers:
            x = functional.conv2d(x, weight, layer.bias, layer.stride, layer.padding).relu_()
        mean: Tensor = self._vae.mean(x.flatten(1))
        return mean
