"""What gymnasium calls for `wm/Dream-v0` and `wm/Real-v0`: a run's world is loaded, and its environment made."""

from typing import Any

from wm.dreams.env import RENDER, DreamEnv, DreamVectorEnv
from wm.world.loading import Paths, RunPath, load
from wm.world.real_env import RealEnv


def make_dream(run: RunPath, data: Paths = None, **options: Any) -> DreamEnv:
    """`gymnasium.make("wm.world:wm/Dream-v0", run=...)`: World.env of a run."""
    return load(run, data).env(**options)


def make_dreams(num_envs: int, run: RunPath, data: Paths = None, **options: Any) -> DreamVectorEnv:
    """`gymnasium.make_vec("wm.world:wm/Dream-v0", num_envs=..., run=...)`: World.vector_env of a run."""
    return load(run, data).vector_env(num_envs, **options)


def make_real(run: RunPath, data: Paths = None, **options: Any) -> RealEnv:
    """`gymnasium.make("wm.world:wm/Real-v0", run=...)`: World.real_env of a run."""
    return load(run, data).real_env(**options)


# gymnasium looks here for the render modes that it may add to: human and rgb_array_list.
make_dream.metadata = make_real.metadata = RENDER  # type: ignore[attr-defined]
