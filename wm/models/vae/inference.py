"""V's encoder laid out once, for acting: a few frames at a time, in float32, the mean of z alone.

Frames come as (height, width, channels) and stay that way. The step from space to depth is then a copy of whole blocks
of bytes, before they become numbers, and the first convolution's weights are put into its order. With eight frames
this takes seven tenths of the time of `Vae.encode` for the small V and little more than half for the attentive one,
whose means it gives to the last few bits.
"""

import torch
from torch import Tensor, nn

from wm.models.onednn import Layer, convolution, product
from wm.models.vae.networks import MAX_CONTRAST, AttentiveVae, SmallVae, Vae

WORD = {2: torch.int16, 4: torch.int32}  # of as many bytes as a block is wide


class InferenceEncoder:
    """Sees with a V whose weights do not change any more, fastest with `rows` frames at a time."""

    @torch.no_grad()
    def __init__(self, vae: Vae, rows: int) -> None:
        if isinstance(vae, SmallVae):
            self._see = _small(vae, rows)
        elif isinstance(vae, AttentiveVae):
            self._see = _attentive(vae, rows)
        else:
            self._see = lambda frames: vae.encode(frames)[0]

    @torch.inference_mode()
    def see(self, frames: Tensor) -> Tensor:
        """(B, S, S, C) uint8 -> mean z (B, Z), float32."""
        return self._see(frames)


def _small(vae: SmallVae, rows: int) -> Layer:
    blocks = _blocks(vae, 4)
    layers, _ = _chain(vae.encoder, blocks(_black(vae, rows)), 4)
    mean = product(vae.mean.weight, vae.mean.bias, rows)
    return lambda frames: mean(layers(blocks(frames)).flatten(1))


def _attentive(vae: AttentiveVae, rows: int) -> Layer:
    blocks = _blocks(vae, 2)
    features, seen = _chain(vae.features, blocks(_black(vae, rows)), 2)
    scene, _ = _chain(vae.scene, seen)
    attention = convolution(vae.attention, vae.attention.weight, seen.shape, relu=False)
    mean = product(vae.mean.weight, vae.mean.bias, rows)

    def see(frames: Tensor) -> Tensor:
        found = features(blocks(frames))
        weights = attention(found).flatten(2).softmax(-1)
        things = torch.bmm(weights, found.permute(0, 2, 3, 1).flatten(1, 2))
        where = weights.flatten(0, 1) @ vae.places
        parts = scene(found).flatten(1), things.flatten(1), where.view(len(frames), -1)
        return mean(torch.cat(parts, 1))

    return see


def _black(vae: Vae, rows: int) -> Tensor:
    return torch.zeros(rows, vae.size, vae.size, vae.channels, dtype=torch.uint8)


def _blocks(vae: Vae, block: int) -> Layer:
    """(B, S, S, C) uint8 -> the difference from the mean picture, (B, C block^2, S / block, S / block) channels_last;
    a block's numbers lie row by row, a pixel's channels side by side."""
    side, word = vae.size // block, WORD[block]
    scale, offset = 1 / (255 * vae.contrast), (vae.background / vae.contrast).permute(1, 2, 0)
    offset = offset.unflatten(0, (side, block)).unflatten(2, (side, block)).transpose(1, 2).flatten(2).contiguous()

    def see(frames: Tensor) -> Tensor:
        words = frames.flatten(2).view(word).unflatten(1, (side, block)).unflatten(3, (side, vae.channels))
        found = words.transpose(2, 3).contiguous().view(torch.uint8).flatten(3).float()
        return found.mul_(scale).sub_(offset).clamp_(-MAX_CONTRAST, MAX_CONTRAST).permute(0, 3, 1, 2)

    return see


def _chain(layers: nn.Sequential, x: Tensor, block: int = 0) -> tuple[Layer, Tensor]:
    """The convolutions of `layers`, each with its ReLU, and what they make of x. The first one's weights are put into
    the order of a block's numbers, if x has any."""
    steps: list[Layer] = []
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            weight = layer.weight
            if block and not steps:
                weight = weight.unflatten(1, (-1, block, block)).permute(0, 2, 3, 1, 4, 5).flatten(1, 3)
            steps.append(convolution(layer, weight, x.shape))
            x = steps[-1](x)

    def see(x: Tensor) -> Tensor:
        for step in steps:
            x = step(x)
        return x

    return see, x
