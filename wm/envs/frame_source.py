"""Where frames come from without a renderer of ours: the observations of an environment, or gymnasium's rendering."""

from collections.abc import Collection
from typing import Any

import gymnasium as gym

from wm.envs.rgb import is_image_space
from wm.errors import UsageProblem


def renders_pictures(env: gym.Env[Any, Any]) -> bool:
    """Whether its metadata names the render mode rgb_array; metadata that are no collection of modes name none."""
    modes = (env.metadata or {}).get("render_modes")
    return isinstance(modes, Collection) and "rgb_array" in modes


def are_observations(name: str, frames: str, space: Any, renders: bool) -> bool:
    """Whether `frames` (observation, render or auto) takes the observations, of this `space`, of an environment that
    renders or not. Raises UsageProblem where they are asked for and are no pictures."""
    if frames == "observation" and not _has_picture_shape(space):
        shape = getattr(space, "shape", None)
        kind = f"{type(space).__name__} of shape {shape}" if shape else type(space).__name__
        raise UsageProblem(
            f"--frames is observation but the observations of {name} are a {kind}, no picture; use --frames render."
        )
    if frames != "auto":
        return frames == "observation"
    return is_image_space(space) or (not renders and is_image_space(space, channels_first=True))


def no_pictures(name: str, frames: str, space: Any) -> UsageProblem:
    """The error of an environment that cannot render, and whose observations `frames` does not take."""
    if frames == "render":
        reason = "it does not render, and --frames is render; use --frames observation, or"
    else:
        reason = "its observations are no uint8 images of 16 pixels a side or more, and it does not render;"
        if _has_picture_shape(space):
            reason += " use --frames observation if they are pictures all the same, or"
    return UsageProblem(f"{name} has no pictures: {reason} add render_mode='rgb_array' to it.")


def _has_picture_shape(space: Any) -> bool:
    return isinstance(space, gym.spaces.Box) and len(space.shape) in (2, 3)
