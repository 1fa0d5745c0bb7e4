"""What an agent observes of an environment that V and M describe, dreamt or real."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.arguments import one_of
from wm.errors import UsageProblem
from wm.models.mdnrnn.predictor import Predictor
from wm.models.vae.networks import Vae, to_frames

KINDS = ("z", "zh", "pixels")
DECODED = 256  # latents at a time: V's widest layer takes 1 MB a frame at 128 pixels

Frames = NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """Observations of a `kind`: `z` latents (Z,), `zh` latents and M's h (Z + H,), `pixels` V's frames (S, S, C) uint8.

    Latents and h are clipped to the bounds of `space`. Without `vae` there are no pixels and no pictures.
    """

    kind: str
    space: gym.spaces.Box
    vae: Vae | None = None

    @classmethod
    def of_latents(cls, kind: str, mdnrnn: Predictor, low: Tensor, high: Tensor, vae: Vae | None = None) -> "View":
        """The view `z` or `zh` of latents between `low` and `high` (Z,). Raises UsageProblem for another kind."""
        if one_of("obs", kind, KINDS) == "pixels":
            raise UsageProblem("obs is 'pixels', which is no view of latents; expected z or zh.")
        bounds = [(low, high)] + ([mdnrnn.hidden_bounds(low, high)] if kind == "zh" else [])
        lows, highs = (torch.cat(sides).numpy() for sides in zip(*bounds, strict=True))
        return cls(kind, gym.spaces.Box(lows, highs, dtype=np.float32), vae)

    @classmethod
    def of_pixels(cls, vae: Vae) -> "View":
        """The view `pixels`."""
        return cls("pixels", gym.spaces.Box(0, 255, (vae.size, vae.size, vae.channels), np.uint8), vae)

    def observe(self, z: Tensor, hidden: Tensor) -> NDArray[np.generic]:
        """Observations (N, ...) of N latents (N, Z) with M's h (N, H), in memory of their own."""
        if self.kind == "pixels":
            return self.frames(z)
        values = z if self.kind == "z" else torch.cat([z, hidden], 1)
        clipped: NDArray[np.float32] = np.clip(values.numpy(), self.space.low, self.space.high)
        return clipped

    def frames(self, z: Tensor) -> Frames:
        """V's frames (N, S, S, C) of latents (N, Z). Raises UsageProblem without a V."""
        if self.vae is None:
            raise UsageProblem("a dream has no pictures without V; give it a View with one.")
        return decode(self.vae, z)


@torch.inference_mode()
def decode(vae: Vae, z: Tensor) -> Frames:
    """V's frames (N, S, S, C) uint8 of latents (N, Z), a few at a time."""
    frames = [to_frames(vae.decode(part)) for part in z.split(DECODED)]
    return torch.cat(frames).contiguous().numpy()


def to_picture(frame: Frames) -> Frames:
    """A frame (S, S, 3 or 1) as RGB (S, S, 3), in memory of its own, which may be drawn on."""
    return np.array(np.broadcast_to(frame, (*frame.shape[:2], 3)))
