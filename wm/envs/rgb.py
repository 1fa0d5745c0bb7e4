"""The one conversion of others' pictures into RGB. What a picture means is certain, or it is refused."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from wm.errors import EnvironmentFault

SMALLEST = 16  # pixels a side: a smaller uint8 observation, such as (7, 7, 3), holds the numbers of a grid's objects
BRIGHTEST = 255  # the upper bound of bytes of a picture: a smaller one is that of a grid's numbers, at any size
ROUNDING = 1e-3  # by which floats may leave 0 to 1: filters overshoot by the last digit, and a byte is four times this
STACKED = 4  # gray frames in an observation, as DQN's of Atari
# Gray, RGB and RGBA. Other numbers of channels are no pictures.
_CHANNELS = (1, 3, 4)
_EXPECTED = "expected one (height, width, 3) uint8 picture"


def is_image_space(space: gym.Space[Any], channels_first: bool = False) -> bool:
    """Whether observations are pictures: uint8 up to 255, gray or RGB, channels last (or first), and not too small."""
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return False
    if space.high.max(initial=0) != BRIGHTEST:
        return False
    *sides, channels = np.roll(space.shape, -1) if channels_first else space.shape
    return channels in (1, 3) and min(sides) >= SMALLEST


def is_picture_shape(shape: tuple[int, ...]) -> bool:
    """Whether a picture can have this shape: (H, W), (H, W, C) with 1, 3 or 4 channels, or (C, H, W) with 1 or 3. Four
    channels that come first are a stack of gray frames."""
    if len(shape) != 3:
        return len(shape) == 2
    first, last = shape[0] in _CHANNELS, shape[2] in _CHANNELS
    return first != last and shape[0] != STACKED


def to_rgb(image: Any, what: str) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 of a picture whose shape can be one's (`is_picture_shape`); floats are from 0 to 1.

    `what` names the picture. Raises EnvironmentFault where its meaning is not certain.
    """
    if not isinstance(image, np.ndarray):
        kind = "None" if image is None else f"of type {type(image).__name__}"
        advice = 'support "rgb_array"' if image is None else "return it as a NumPy array"
        if isinstance(image, list | tuple):
            advice = "return the newest picture alone, as a NumPy array"
        raise EnvironmentFault(f"{what} is {kind}; {_EXPECTED}, so {advice}.")
    picture = _to_bytes(_channels_last(image, what), what)
    channels = picture.shape[2]
    if channels == 1:
        return np.repeat(picture, 3, axis=2)
    if channels == 4:
        if (picture[..., 3] != 255).any():
            raise EnvironmentFault(
                f"{what} has transparent pixels, or is a stack of {STACKED} gray frames; {_EXPECTED}, so paint it on a "
                "background, or return the newest frame alone."
            )
        return np.ascontiguousarray(picture[..., :3])
    return picture


def _channels_last(image: NDArray[Any], what: str) -> NDArray[Any]:
    if image.ndim == 2:
        image = image[..., None]
    if image.size and is_picture_shape(image.shape):
        return image if image.shape[2] in _CHANNELS else np.ascontiguousarray(image.transpose(1, 2, 0))
    advice = ", so return the newest frame alone" if image.shape[:1] == (STACKED,) else ""
    raise EnvironmentFault(f"{what} has the shape {image.shape}; {_EXPECTED}{advice}.")


def _to_bytes(image: NDArray[Any], what: str) -> NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind != "f":
        raise EnvironmentFault(f"{what} is {image.dtype}; {_EXPECTED} or floats from 0 to 1, so convert it.")
    low, high = float(image.min()), float(image.max())
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):  # also for NaN
        values = "has NaN" if np.isnan(low) or np.isnan(high) else f"has floats from {low:g} to {high:g}"
        raise EnvironmentFault(f"{what} {values}; {_EXPECTED} or floats from 0 to 1, so scale it.")
    return np.rint(image * 255).astype(np.uint8)
