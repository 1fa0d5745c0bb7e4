"""Dreams as stable-baselines3 takes them."""

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from wm import extras
from wm.errors import UsageProblem

# Without the extra the class below has no base, and World.sb3_env refuses to make it.
VecEnv: Any = (
    importlib.import_module("stable_baselines3.common.vec_env").VecEnv if extras.is_installed("sb3") else object
)

Indices = None | int | Iterable[int]


class Sb3VecEnv(VecEnv):  # type: ignore[misc] # a base that may not be installed
    """A gymnasium.vector.VectorEnv with SAME_STEP autoreset as the VecEnv of stable-baselines3.

    Where an episode ends, `terminal_observation` in the info is its last one, and `TimeLimit.truncated` tells whether
    it was truncated, so that learners bootstrap from it. `seed` seeds the next reset.
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode != AutoresetMode.SAME_STEP:
            raise UsageProblem(f"autoreset_mode is {mode}; stable-baselines3 needs AutoresetMode.SAME_STEP.")
        self.env = env
        self._actions: NDArray[Any] = np.zeros(0)
        self._next_seed: int | None = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed all dreams at once by the next reset."""
        self._next_seed = seed
        return [seed] * self.num_envs

    def reset(self) -> NDArray[Any]:
        """Begin all episodes. Returns observations (N, ...)."""
        observations, _ = self.env.reset(seed=self._next_seed)
        self._next_seed = None
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions for step_wait."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Observations, rewards, ends, and an info for each environment."""
        observations, rewards, terminated, truncated, info = self.env.step(self._actions)
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": bool(cut)} for cut in truncated]
        ended = terminated | truncated
        for row in np.flatnonzero(ended):
            infos[row]["terminal_observation"] = info["final_obs"][row]
        return observations, rewards.astype(np.float32), ended, infos

    def close(self) -> None:
        """Close the dreams."""
        self.env.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """V's picture of every dream; None without render_mode."""
        pictures: Any = self.env.render()
        return [None] * self.num_envs if pictures is None else list(pictures)

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """An attribute, which all dreams share."""
        return [getattr(self.env, attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of all dreams. Raises UsageProblem for some of them only."""
        if self._count(indices) != self.num_envs:
            raise UsageProblem(
                f"{attr_name} is set for {self._count(indices)} dreams; they share it, so set it for all."
            )
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Indices = None, **kwargs: Any) -> list[Any]:
        """Call a method of the vector environment once, for all dreams."""
        return [getattr(self.env, method_name)(*args, **kwargs)] * self._count(indices)

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Dreams are not wrapped one by one."""
        return [False] * self._count(indices)

    def _count(self, indices: Indices) -> int:
        return len(list(self._get_indices(indices)))


def monitored(env: gym.vector.VectorEnv[Any, Any, Any]) -> Any:
    """A Sb3VecEnv of `env` that tells the returns and lengths of episodes, without which a learner logs none."""
    return importlib.import_module("stable_baselines3.common.vec_env").VecMonitor(Sb3VecEnv(env))
