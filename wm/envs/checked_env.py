"""What every environment of others passes through: its rewards, ends and shapes of pictures are checked, its actions
translated, its steps counted.

`EnvConfig` builds no environment without it, so that no loop can forget the check.
"""

import sys
from collections.abc import Callable
from multiprocessing import parent_process
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from wm.actions import LARGEST_INTEGER, fits_floats
from wm.envs import process_state
from wm.envs.registration import one_line, raise_contained
from wm.errors import EnvironmentFault, Stopped
from wm.stats import LARGEST_REWARD

Translate = Callable[[Any], Any]
_LONGEST = 80  # characters of a space


class CheckedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose rewards are finite floats of at most LARGEST_REWARD in size. `steps` is the number of its
    steps in the episode, which is truncated after `max_steps` (0: at the environment's own limit only).

    Discrete actions count from 0 here, and a Box is flat and continuous: `step` gives the environment its own actions,
    of the type that its space samples, in memory of their own. What an environment writes into an action is not stored,
    and what it raises is an Exception, KeyboardInterrupt or SystemExit.
    """

    def __init__(self, env: gym.Env[Any, Any], name: str, max_steps: int = 0) -> None:
        super().__init__(env)
        self._own_actions = env.action_space
        self.action_space, self._translate = _plain_actions(self._own_actions)
        self._name, self._max_steps = name, max_steps
        self._seed: int | None = None
        self._pictures: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}  # of this episode, by where they are from
        self._is_worker = parent_process() is not None  # which goes back after its task; a step is too short for it
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._seed, self.steps = seed, 0
        self._pictures.clear()
        with process_state.preserved(), process_state.torch_of_environments():
            try:
                # BaseException: an environment may call sys.exit(), and that must not end a collection without a word.
                observation, info = process_state.in_context(self.env.reset, seed=seed, options=options)
            except BaseException as error:
                raise_contained(error)
        if not isinstance(info, dict):
            raise self._fault("info", info, "a dict", "reset()")
        actions = self.env.action_space
        # Compared at each reset: some environments build another space for each episode, which no C could act in.
        if actions is not self._own_actions and actions != self._own_actions:
            where = "" if seed is None else f" with seed {seed}"
            raise EnvironmentFault(
                f"{self._name} has the action space {_brief(actions)} in the episode{where} but was built with "
                f"{_brief(self._own_actions)}; expected one space for all episodes, with the actions of all."
            )
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._translate is not None:
            action = self._translate(action)
        elif isinstance(action, np.ndarray):
            # A copy, because some environments write into the action, and the same array is stored in the episode.
            action = action.copy()
        outside = None if self._is_worker else process_state.outside()
        try:
            with process_state.torch_of_environments():
                observation, reward, terminated, truncated, info = process_state.in_context(self.env.step, action)
        except BaseException as error:
            raise_contained(error)
        if outside is not None:
            process_state.put_back(outside)
        checked = self._check_reward(reward)
        terminated, truncated = self._check_end("terminated", terminated), self._check_end("truncated", truncated)
        if not isinstance(info, dict):
            raise self._fault("info", info, "a dict")
        self.steps += 1
        # Not where it terminated at that very step: the end of a task must not count as a time limit.
        if 0 < self._max_steps <= self.steps and not terminated:
            truncated = True
        return observation, checked, terminated, truncated, info

    def render(self) -> Any:
        try:
            with process_state.torch_of_environments():
                picture = process_state.in_context(self.env.render)
        except NotImplementedError:
            raise EnvironmentFault(
                f"{self._name} has no pictures: its render() is not implemented; let it return an array in the mode "
                "rgb_array, or observe one uint8 image of 16 pixels a side or more."
            ) from None
        except BaseException as error:
            raise_contained(error)
        self.require_shape(picture, "the result of render()")
        return picture

    def require_shape(self, picture: Any, what: str) -> None:
        """Raise EnvironmentFault if a picture has another shape or type than those of this kind before it in the
        episode: shrunk to one size, they would show the same thing at several."""
        if not isinstance(picture, np.ndarray):
            return
        now = picture.shape, picture.dtype
        if (before := self._pictures.setdefault(what, now)) != now:
            was, is_ = (f"{shape} {dtype}" for shape, dtype in (before, now))
            seed = "" if self._seed is None else f" of the episode with seed {self._seed}"
            raise EnvironmentFault(
                f"{self._name}: {what} is {is_} after {self.steps} steps{seed}, and was {was} before; expected one "
                "shape and type for all pictures of an episode, so fix the environment."
            )

    def close(self) -> None:
        """Raises EnvironmentFault if the environment cannot be closed, unless something else is being raised."""
        earlier = sys.exception()
        try:
            process_state.in_context(self.env.close)
        except (KeyboardInterrupt, Stopped):
            # A signal of the user is no fault of the environment.
            # An error while closing must not hide the error because of which it is closed.
            raise
        except BaseException as error:
            if earlier is None:
                raise EnvironmentFault(
                    f"{self._name} raised {one_line(error)} in close(); fix the environment's close()."
                ) from error

    @property
    def own_limit(self) -> int:
        """Steps after which gymnasium truncates its episodes; 0 if it does not."""
        env: Any = self.env
        while isinstance(env, gym.Wrapper):
            if isinstance(env, gym.wrappers.TimeLimit):
                # gymnasium has no public name for it; without a TimeLimit an episode may be endless.
                return int(env._max_episode_steps)
            env = env.env
        return 0

    def _check_reward(self, reward: Any) -> float:
        """The reward as a float. Raises EnvironmentFault if it is no finite number, or larger than LARGEST_REWARD."""
        value = reward if type(reward) is float else as_number(reward)
        if -LARGEST_REWARD <= value <= LARGEST_REWARD:
            return value
        raise self._fault("the reward", reward, f"a finite number of at most {LARGEST_REWARD:g} in size")

    def _check_end(self, name: str, value: Any) -> bool:
        """`terminated` or `truncated` as a bool. Raises EnvironmentFault unless it is true or false, or 0 or 1."""
        if value is True or value is False:
            return value
        number = as_number(value)
        if number in (0, 1):
            return number == 1
        raise self._fault(name, value, "True or False")

    def _fault(self, what: str, value: Any, expected: str, method: str = "step()") -> EnvironmentFault:
        where = f"at step {self.steps}" if method == "step()" else f"from {method}"
        seed = "" if self._seed is None else f" of the episode with seed {self._seed}"
        return EnvironmentFault(
            f"{self._name} returned {what} {_describe(value)} {where}{seed}; expected {expected}, so fix the "
            f"environment's {method}."
        )


def as_number(value: Any) -> float:
    """The value as a float; NaN if it is no real number."""
    try:
        if isinstance(value, str | bytes | np.complexfloating) or np.ndim(value):
            return np.nan
        return float(value)
    except (TypeError, ValueError, OverflowError):
        # Whatever is no number is told by the caller, with the step and the seed.
        return np.nan


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    if isinstance(value, int) and abs(value) > LARGEST_REWARD:
        return f"of {value.bit_length()} bits"
    if value is None or isinstance(value, int | float | np.number):
        return str(value)
    return f"of type {type(value).__name__}"


def _brief(space: Any) -> str:
    """A space on one line, without most of its bounds where they are many."""
    text = " ".join(str(space).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _plain_actions(space: gym.Space[Any]) -> tuple[gym.Space[Any], Translate | None]:
    """The action space as agents see it, and the translation to the environment's own actions (None: the same)."""
    if isinstance(space, gym.spaces.Discrete):
        number, start = np.dtype(space.dtype).type, space.start
        plain = space if start == 0 else gym.spaces.Discrete(int(space.n))
        return plain, lambda action: number(start + action)
    if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
        return space, None
    low, high = space.low.ravel(), space.high.ravel()
    if np.dtype(space.dtype).kind in "iub":
        if 0 in space.shape or max(-int(low.min()), int(high.max())) > LARGEST_INTEGER:
            return space, None
        low, high = low.astype(np.float64), high.astype(np.float64)

        def to_integers(action: Any) -> NDArray[Any]:
            # Clipped before the cast: a number beyond the bounds would wrap around in a small integer type.
            return np.clip(np.rint(action), low, high).reshape(space.shape).astype(space.dtype)

        # Half a unit wider on both sides: uniform actions are then uniform integers after rounding.
        margin = np.where(low < high, 0.5, 0.0)
        return gym.spaces.Box((low - margin).astype(np.float32), (high + margin).astype(np.float32)), to_integers
    if (len(space.shape) == 1 and space.dtype == np.float32) or not fits_floats(space):
        return space, None

    def to_own_floats(action: Any) -> NDArray[Any]:
        """Of the space's type and shape. Bounds rounded to float32 may lie outside of its own."""
        return np.clip(np.asarray(action).astype(space.dtype), low, high).reshape(space.shape)

    if len(space.shape) == 1:
        return space, to_own_floats
    with np.errstate(over="ignore"):  # infinite bounds are refused with the space
        return gym.spaces.Box(low.astype(np.float32), high.astype(np.float32)), to_own_floats
