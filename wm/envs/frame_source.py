"""Where frames come from without a renderer of ours: the observations of an environment, or gymnasium's rendering."""

from collections.abc import Collection
from typing import Any

import gymnasium as gym

from wm.envs.rgb import STACKED, is_image_space, is_picture_shape
from wm.errors import UsageProblem


def renders_pictures(env: gym.Env[Any, Any]) -> bool:
    """Whether its metadata names the render mode rgb_array; metadata that are no collection of modes name none."""
    modes = (env.metadata or {}).get("render_modes")
    return isinstance(modes, Collection) and "rgb_array" in modes


def are_observations(name: str, frames: str, env: gym.Env[Any, Any], renders: bool) -> bool:
    """Whether `frames` (observation, render or auto) takes the observations of this environment, which renders or not.
    Raises UsageProblem where they are asked for and are no pictures."""
    space = observation_space(env)
    if frames == "observation" and not _can_be_pictures(env):
        shape = getattr(space, "shape", None)
        kind = f"{type(space).__name__} of shape {shape}" if shape else type(space).__name__
        what = f"a stack of {space.shape[0]} gray frames" if _is_stack(env) else "no picture"
        advice = "use --frames render" if renders else "let it return one picture, the newest of several"
        raise UsageProblem(f"--frames is observation but the observations of {name} are a {kind}, {what}; {advice}.")
    if frames != "auto":
        return frames == "observation"
    if _is_stack(env):
        return False
    return is_image_space(space) or (not renders and is_image_space(space, channels_first=True))


def observation_space(env: gym.Env[Any, Any]) -> Any:
    """The space of its observations; None where it has none."""
    return getattr(env, "observation_space", None)


def no_pictures(name: str, frames: str, env: gym.Env[Any, Any]) -> UsageProblem:
    """The error of an environment that cannot render, and whose observations `frames` does not take."""
    if frames == "render":
        reason = "it does not render, and --frames is render;"
        if _can_be_pictures(env):
            reason += " use --frames observation, or"
    elif _is_stack(env):
        reason = "its observations are stacks of gray frames, and it does not render; leave out the stack, or"
    else:
        reason = "its observations are no uint8 images of 16 pixels a side or more, and it does not render;"
        if _can_be_pictures(env):
            reason += " use --frames observation if they are pictures all the same, or"
    return UsageProblem(f"{name} has no pictures: {reason} add render_mode='rgb_array' to it.")


def _can_be_pictures(env: gym.Env[Any, Any]) -> bool:
    space = observation_space(env)
    return isinstance(space, gym.spaces.Box) and is_picture_shape(space.shape) and not _is_stack(env)


def _is_stack(env: gym.Env[Any, Any]) -> bool:
    """Whether observations are stacks of gray frames, (N, H, W): three look like colours, whose wrapper tells alone."""
    space: Any = observation_space(env)
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 3:
        return False
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.FrameStackObservation):
            return env.stack_size > 1 and env.observation_space == space
        env = env.env
    return space.shape[0] == STACKED and not is_picture_shape(space.shape)
