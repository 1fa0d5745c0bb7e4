from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from wm.envs import frame_source
from wm.envs.rgb import is_image_space, to_rgb
from wm.errors import EnvironmentFault, UsageProblem

RGB = np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8)
OPAQUE = np.full((20, 24, 1), 255, np.uint8)


@pytest.mark.parametrize(
    "picture",
    [
        RGB,
        RGB.transpose(2, 0, 1),
        np.concatenate([RGB, OPAQUE], axis=2),
        RGB / 255,
        (RGB / 255).astype(np.float32),
        RGB / 255 * 1.0018 - 0.0009,  # as a filter that overshoots leaves it
    ],
)
def test_every_picture_with_a_certain_meaning_becomes_the_same_rgb(picture: Any) -> None:
    result = to_rgb(picture, "it")
    assert result.dtype == np.uint8
    assert np.array_equal(result, RGB)


@pytest.mark.parametrize("picture", [RGB[..., 0], RGB[..., :1], RGB[None, ..., 0]])
def test_gray_pictures_become_three_equal_channels(picture: Any) -> None:
    assert np.array_equal(to_rgb(picture, "it"), np.repeat(RGB[..., :1], 3, axis=2))


def test_a_uint8_picture_is_not_copied() -> None:
    assert to_rgb(RGB, "it") is RGB


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (RGB / 127.5 - 1, "has floats from -1 to 1; .* so scale it"),
        (RGB / 255 * 1.01, "has floats from 0 to 1.01; .* so scale it"),
        (RGB.astype(float), "has floats from 0 to 255; .* so scale it"),
        (np.where(RGB > 0, RGB / 255, np.nan), "has NaN"),
        (RGB.astype(np.int64), "is int64; .* so convert it"),
        (None, "is None; .* support"),
        ([RGB, RGB], "is of type list; .* return the newest picture alone"),
        (torch.from_numpy(RGB), "is of type Tensor; .* so return it as a NumPy array"),
        (RGB[..., :2], r"has the shape \(20, 24, 2\)"),
        (RGB[:3], r"has the shape \(3, 24, 3\)"),  # channels first or last?
        (RGB[None], r"has the shape \(1, 20, 24, 3\)"),
        (np.concatenate([RGB, OPAQUE // 2], axis=2), "has transparent pixels, or is a stack of 4 gray frames; "),
        (np.full((4, 20, 24), 255, np.uint8), r"has the shape \(4, 20, 24\); .* so return the newest frame alone"),
    ],
)
def test_other_pictures_are_refused_with_what_they_are(picture: Any, message: str) -> None:
    with pytest.raises(EnvironmentFault, match=f"^Odd-v0: the result of render\\(\\) {message}"):
        to_rgb(picture, "Odd-v0: the result of render()")


@pytest.mark.parametrize(
    ("shape", "dtype", "is_image"),
    [
        ((16, 16, 3), np.uint8, True),
        ((210, 160, 1), np.uint8, True),
        ((7, 7, 3), np.uint8, False),
        ((64, 15, 3), np.uint8, False),
        ((64, 64, 3), np.float32, False),
        ((64, 64, 4), np.uint8, False),
        ((3, 64, 64), np.uint8, False),
        ((128,), np.uint8, False),
    ],
)
def test_an_observation_is_an_image_from_16_pixels_a_side(shape: Any, dtype: Any, is_image: bool) -> None:
    assert is_image_space(gym.spaces.Box(0, 255, shape, dtype)) == is_image


class Gray(gym.Env[Any, Any]):
    observation_space, action_space = gym.spaces.Box(0, 255, (40, 48), np.uint8), gym.spaces.Discrete(2)


@pytest.mark.parametrize("number", [3, 4])
def test_stacked_gray_frames_are_not_taken_for_the_colours_of_one(number: int) -> None:
    env: Any = gym.wrappers.FrameStackObservation(Gray(), number)
    assert not frame_source.are_observations("it", "auto", env, renders=False)
    with pytest.raises(
        UsageProblem, match=rf"\({number}, 40, 48\), a stack of {number} gray frames; let it return one"
    ):
        frame_source.are_observations("it", "observation", env, renders=False)
    newest = gym.wrappers.TransformObservation(
        env, lambda stack: stack[-1:], gym.spaces.Box(0, 255, (1, 40, 48), np.uint8)
    )
    assert frame_source.are_observations("it", "auto", newest, renders=False)
    assert frame_source.are_observations("it", "observation", Gray(), renders=False)


@pytest.mark.parametrize("high", [1, 10, 254])
def test_a_grid_of_numbers_is_no_image_at_any_size(high: int) -> None:
    assert not is_image_space(gym.spaces.Box(0, high, (64, 64, 3), np.uint8))


def test_channels_first_are_accepted_where_asked_for() -> None:
    space = gym.spaces.Box(0, 255, (3, 64, 64), np.uint8)
    assert is_image_space(space, channels_first=True)
    assert not is_image_space(gym.spaces.Box(0, 255, (64, 64, 3), np.uint8), channels_first=True)
