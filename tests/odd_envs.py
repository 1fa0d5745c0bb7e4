"""Odd environments, as people write them: a dot that moves, in every form of picture, action, reward and end."""

import os
import signal
import sys
import time
import warnings
import weakref
from typing import Any

import gymnasium as gym
import numpy as np

DOT = (200, 120, 40)
STEPS = 12
IMAGE = gym.spaces.Box(0, 255, (32, 48, 3), np.uint8)
VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)


class Odd(gym.Env):  # type: ignore[type-arg]
    """The parts that odd environments replace. An action of `action_space` must arrive."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space: Any = VECTOR
    action_space: Any = gym.spaces.Discrete(3)
    length = STEPS

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t, self.x = 0, int(self.np_random.integers(4, 44))
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"{action!r} is no action of {self.action_space}"
        self.t += 1
        self.x = int(np.clip(self.x + self.np_random.integers(-2, 3), 4, 43))
        return self.observe(), self.reward(action), self.t >= self.length, False, self.info()

    def picture(self) -> Any:
        picture = np.full((32, 48, 3), 30, np.uint8)
        picture[12:20, self.x - 4 : self.x + 4] = DOT
        return picture

    def observe(self) -> Any:
        return np.zeros(4, np.float32)

    def render(self) -> Any:
        return self.picture()

    def reward(self, action: Any) -> Any:
        return 1.0

    def info(self) -> dict[str, Any]:
        return {}


def _alpha(picture: Any) -> Any:
    return np.concatenate([picture, np.full((32, 48, 1), 255, np.uint8)], axis=2)


def _raises(self: Any, *_: Any, **__: Any) -> Any:
    raise RuntimeError("the simulator\n is gone")


def _exits(self: Any, action: Any) -> Any:
    sys.exit("no licence")


class _RustPanic(BaseException):
    """As pyo3's."""


def _panics(self: Any, *_: Any, **__: Any) -> Any:
    raise _RustPanic("called unwrap() on a None value")


class _Nameless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _quits(self: Any, action: Any) -> Any:
    os._exit(0)


def _crashes(self: Any, **_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def _crashes_later(self: Any, action: Any) -> Any:
    return _crashes(self) if self.t == 3 else Odd.step(self, action)


def _hangs(self: Any, **_: Any) -> Any:
    time.sleep(3600)


def _late_exit(self: Any, action: Any) -> Any:
    if self.t == 3:
        sys.exit(0)
    return Odd.step(self, action)


def _late(error: Exception) -> dict[str, Any]:
    """The parts of an environment that raises this in its fourth step."""

    def step(self: Any, action: Any) -> Any:
        if self.t == 3:
            raise error
        return Odd.step(self, action)

    return {"step": step}


def _prints(self: Any, action: Any) -> Any:
    sys.stdout.write("noise of the simulator\n")
    os.write(1, b"noise of its library\n")
    return Odd.step(self, action)


def _warns(self: Any, action: Any) -> Any:
    warnings.simplefilter("always")
    warnings.warn("the physics is old", stacklevel=1)
    return Odd.step(self, action)


def _warns_of_time(self: Any, action: Any) -> Any:
    warnings.simplefilter("always")
    warnings.warn(f"the physics is old at step {self.t}", stacklevel=1)
    return Odd.step(self, action)


def _go_elsewhere() -> None:
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")


def _built_elsewhere(self: Any, render_mode: str | None = None) -> None:
    Odd.__init__(self, render_mode)
    _go_elsewhere()


def _reset_elsewhere(self: Any, **options: Any) -> Any:
    _go_elsewhere()
    return Odd.reset(self, **options)


def _steps_elsewhere(self: Any, action: Any) -> Any:
    _go_elsewhere()
    return Odd.step(self, action)


def _nameless(self: Any, action: Any) -> Any:
    raise _Nameless


def _changes_action(self: Any, action: Any) -> Any:
    observation, _, *ends = Odd.step(self, action)
    paid = float(action[0])
    action *= 0
    return observation, paid, *ends


def _chooses_actions(self: Any, *, seed: int, options: Any) -> Any:
    self.action_space = gym.spaces.Discrete(2 + seed % 3)
    return Odd.reset(self, seed=seed)


def _demands_seed(self: Any, *, seed: int, options: Any) -> Any:
    if seed is None:
        raise TypeError("which episode?")
    return Odd.reset(self, seed=seed)


def _demands_mode(self: Any, render_mode: str) -> None:
    Odd.__init__(self, render_mode)


def _refuses_no_mode(self: Any, render_mode: str | None = None) -> None:
    if render_mode != "rgb_array":
        raise ValueError(f"cannot render in the mode {render_mode}")
    Odd.__init__(self, render_mode)


def _draws(self: Any, action: Any) -> Any:
    """As those that draw in every step, on a screen that they have in their render mode alone."""
    if self.render_mode is None:
        raise AttributeError("no screen")
    return Odd.step(self, action)


def _no_info(self: Any, **options: Any) -> Any:
    return Odd.reset(self, **options)[0], None


def _text_end(self: Any, action: Any) -> Any:
    observation, reward, ended, truncated, info = Odd.step(self, action)
    return observation, reward, str(ended), truncated, info


def _old_reset(self: Any, **options: Any) -> Any:
    return Odd.reset(self, **options)[0]


def _old_step(self: Any, action: Any) -> Any:
    observation, reward, ended, _, info = Odd.step(self, action)
    return observation, reward, ended, info


def _picture_in_place(self: Any) -> Any:
    """Pictures of the stored size, all in the same memory."""
    self.buffer = getattr(self, "buffer", np.empty((32, 32, 3), np.uint8))
    self.buffer[:] = self.picture()[:, :32]
    return self.buffer


def _rendered(convert: Any) -> dict[str, Any]:
    return {"render": lambda self: convert(self.picture())}


def _observed(space: Any, convert: Any) -> dict[str, Any]:
    return {"observation_space": space, "observe": lambda self: convert(self.picture())}


def _later(convert: Any) -> Any:
    """A method that returns the picture, and from the fourth step on a converted one."""
    return lambda self: convert(self.picture()) if self.t > 3 else self.picture()


def _late_nan(self: Any, action: Any) -> float:
    return float("nan") if self.t == 5 else 1.0


def _later_nan(self: Any, action: Any) -> float:
    return float("nan") if "ODD_NAN" in os.environ else 1.0


_world = {"steps": 0, "episodes": 0}
_clients = weakref.WeakSet[Any]()


def _reset_world(self: Any, **options: Any) -> Any:
    _world["steps"] = 0
    return Odd.reset(self, **options)


def _step_world(self: Any, action: Any) -> Any:
    observation, reward, _, truncated, info = Odd.step(self, action)
    _world["steps"] += 1
    return observation, reward, _world["steps"] >= STEPS, truncated, info


def _open_alone(self: Any, render_mode: str | None = None) -> None:
    if _clients:
        raise ConnectionError("the simulator serves one client")
    _clients.add(self)
    Odd.__init__(self, render_mode)


def _close(self: Any) -> None:
    _clients.discard(self)


def _count_episodes(self: Any, action: Any) -> float:
    _world["episodes"] += self.t == 1
    return float(_world["episodes"])


def _seed_process(self: Any, *, seed: int, options: Any = None) -> Any:
    np.random.seed(seed)
    return Odd.reset(self, seed=seed)


def _draw_late(self: Any, action: Any) -> float:
    return float(np.random.random()) if self.t > 20 else 0.0


_BYTES = np.uint8
_SYMBOLS = gym.spaces.Box(0, 255, (7, 7, 3), _BYTES)
VARIANTS: dict[str, dict[str, Any]] = {
    "Plain": {},
    "Observed": _observed(IMAGE, np.asarray),
    "FloatUnit": _rendered(lambda p: (p / 255).astype(np.float32)),
    "FloatSigned": _rendered(lambda p: p / 127.5 - 1),
    "FloatBytes": _rendered(lambda p: p.astype(np.float64)),
    "GrowsRendered": {"render": _later(lambda p: p.repeat(2, axis=0))},
    "GrowsObserved": {"observation_space": IMAGE, "observe": _later(lambda p: p.repeat(2, axis=0))},
    "FloatsLater": {"render": _later(lambda p: p / 255)},
    "NanPicture": _rendered(lambda p: np.full(p.shape, np.nan)),
    "Integers": _rendered(lambda p: p.astype(np.int64)),
    "ChannelsFirst": _rendered(lambda p: p.transpose(2, 0, 1)),
    "ObservedFirst": {
        **_observed(gym.spaces.Box(0, 255, (3, 32, 48), _BYTES), lambda p: p.transpose(2, 0, 1)),
        "metadata": {},
    },
    "FourFrames": {
        **_observed(gym.spaces.Box(0, 255, (4, 32, 48), _BYTES), lambda p: np.full((4, 32, 48), 255, _BYTES)),
        "metadata": {},
        "__init__": lambda self: None,
    },
    "Undrawn": {"metadata": {}, "render": gym.Env.render},
    "Rgba": _rendered(_alpha),
    "SameMemory": {"render": _picture_in_place},
    "Flat": _rendered(lambda p: p[..., 0]),
    "OneChannel": _observed(gym.spaces.Box(0, 255, (32, 48, 1), _BYTES), lambda p: p[..., :1]),
    "ListOfPictures": _rendered(lambda p: [p, p]),
    "NoPicture": _rendered(lambda p: None),
    "Symbols": _observed(_SYMBOLS, lambda p: np.ones((7, 7, 3), _BYTES)),
    "Negative": _observed(IMAGE, lambda p: 255 - p),
    "Dict": _observed(gym.spaces.Dict({"a": VECTOR}), lambda p: {"a": np.zeros(4, np.float32)}),
    "NoNumbers": _observed(gym.spaces.Box(-1, 1, (0,)), lambda p: np.zeros(0, np.float32)),
    "Faint": {"reward": lambda self, action: 2e-8},
    "Ragged": {"observe": lambda self: [0.0] * self.t},
    "Blind": {"metadata": {}, "__init__": lambda self: None},
    "Shifted": {"action_space": gym.spaces.Discrete(3, start=5)},
    "HalfBox": {"action_space": gym.spaces.Box(-0.1, 0.1, (2,), np.float16)},
    "DoubleBox": {"action_space": gym.spaces.Box(-0.1, 0.1, (2,), np.float64)},
    "OneAction": {"action_space": gym.spaces.Discrete(1)},
    "IntegerBox": {"action_space": gym.spaces.Box(0, 3, (2,), np.int32)},
    "SquareBox": {"action_space": gym.spaces.Box(-1, 1, (2, 2))},
    "FixedBox": {"action_space": gym.spaces.Box(np.array([-1, 2], np.float32), np.array([1, 2], np.float32))},
    "NoActions": {"action_space": gym.spaces.Box(-1, 1, (0,))},
    "WideIntegers": {"action_space": gym.spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64)},
    "Unbounded": {"action_space": gym.spaces.Box(-np.inf, np.inf, (2,))},
    "MultiDiscrete": {"action_space": gym.spaces.MultiDiscrete([3, 3])},
    "NanReward": {"reward": _late_nan},
    "LaterNan": {"reward": _later_nan},
    "InfiniteReward": {"reward": lambda self, action: float("inf")},
    "NoReward": {"reward": lambda self, action: None},
    "ArrayReward": {"reward": lambda self, action: np.ones(2)},
    "NumpyReward": {"reward": lambda self, action: np.float32(1)},
    "OneStep": {"length": 1},
    "TextEnd": {"step": _text_end},
    "NoInfo": {"info": lambda self: None},
    "Exit": {"step": _exits},
    "Endless": {"step": lambda self, action: (*Odd.step(self, action)[:2], False, False, {})},
    "Shared": {"reset": _reset_world, "step": _step_world},
    "Single": {"__init__": _open_alone, "close": _close},
    "Drifting": {"reward": _count_episodes},
    "Constant": {"picture": lambda self: np.full((32, 48, 3), 90, _BYTES)},
    "Labels": {"info": lambda self: {"labels": ["car", "road"]}},
    "LateLabels": {"info": lambda self: {"labels": [1.0]} if self.t > 3 else {}},
    "OldReset": {"reset": _old_reset},
    "OldStep": {"step": _old_step},
    "BrokenReset": {"reset": _raises},
    "BrokenStep": {"step": _raises},
    "PanicBuilt": {"__init__": _panics},
    "PanicReset": {"reset": _panics},
    "PanicStep": {"step": _panics},
    "PanicRender": {"render": _panics},
    "BrokenClose": {"close": _raises},
    "PanicClose": {"close": _panics},
    "LateExit": {"step": _late_exit},
    "LateError": _late(RuntimeError("out of fuel")),
    "LateFile": _late(FileNotFoundError(2, "No such file", "map.xml")),
    "LatePipe": _late(BrokenPipeError("the simulator is gone")),
    "LateStop": _late(StopIteration()),
    "Prints": {"step": _prints},
    "Wanders": {"reset": _reset_elsewhere},
    "StepsElsewhere": {"step": _steps_elsewhere},
    "BuiltElsewhere": {"__init__": _built_elsewhere},
    "Nameless": {"step": _nameless},
    "NoResetInfo": {"reset": _no_info},
    "NoModes": {**_observed(IMAGE, np.asarray), "metadata": {"render_modes": None}},
    "ManyActions": {"action_space": gym.spaces.Discrete(10**9)},
    "WideBox": {"action_space": gym.spaces.Box(-1, 1, (9000,))},
    "FarBox": {"action_space": gym.spaces.Box(-3e38, 0, (2,))},
    "HugeReward": {"reward": lambda self, action: 1e30},
    "ChoosesActions": {"reset": _chooses_actions},
    "DemandsSeed": {"reset": _demands_seed},
    "DemandsMode": {"__init__": _demands_mode},
    "RefusesNoMode": {"__init__": _refuses_no_mode},
    "DrawsInSteps": {"step": _draws},
    "ChangesAction": {"action_space": gym.spaces.Box(-1, 1, (2,)), "step": _changes_action},
}

# They end the process in which they run, or keep it for ever, without an exception.
FATAL: dict[str, dict[str, Any]] = {
    "Quits": {"step": _quits},
    "Crashes": {"reset": _crashes},
    "CrashesLater": {"step": _crashes_later},
    "Hangs": {"reset": _hangs},
}

# They are stored as Plain is, with warnings at every step.
LOUD: dict[str, dict[str, Any]] = {"Warns": {"step": _warns}, "WarnsOfTime": {"step": _warns_of_time}}

# Their instances draw from the process' generator, which reset() seeds: one late, one in no step that another can meet.
SEEDED: dict[str, dict[str, Any]] = {
    "SeedsProcess": {"reset": _seed_process, "reward": _draw_late, "length": 40},
    "SeedsInVain": {"reset": _seed_process, "length": 40},
}

for _name, _parts in (VARIANTS | FATAL | LOUD | SEEDED).items():
    if f"{_name}-v0" not in gym.registry:
        gym.register(f"{_name}-v0", type(_name, (Odd,), _parts))
