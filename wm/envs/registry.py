"""Which environments there are, and how one is built.

Named environments know a little more than gymnasium's registry: labels behind the pixels, a good policy head, whether
the player has to serve. Any other gymnasium id works as it is.
"""

import copy
import difflib
import importlib
import importlib.util
import os
import tempfile
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym

from wm.envs import labels
from wm.envs.pixel_env import GymnasiumRenderer, PixelEnv, Renderer
from wm.errors import MissingPackage, UsageProblem

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # Box2D and classic control draw off screen; no display is needed
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # SDL complains on stderr when it is unset


@dataclass(frozen=True)
class EnvSpec:
    """What is known of an environment by name. `painter` names our own way of drawing it, `fast` whether it has a
    fast variant, `rows_per_episode` about how long random play lasts, `walk_low` from where a random walk's actions
    begin if that is below the box, `max_idle` after how many steps without a positive reward a training episode may as
    well end (0: never)."""

    name: str
    env_id: str
    package: str
    pip: str
    probe: labels.Probe | None = None
    head: str = "auto"
    ordered: tuple[int, int, int] | None = None
    serve: int | None = None
    painter: str = ""
    fast: bool = False
    rows_per_episode: int = 1000
    walk_low: tuple[float, ...] | None = None
    max_idle: int = 0
    protocol: str = ""

    @property
    def offers_both_action_spaces(self) -> bool:
        """Whether the environment takes `continuous=True|False`."""
        return self.env_id.startswith(("LunarLander", "CarRacing"))


_BOX2D = "'gymnasium[box2d]'"
_CLASSIC = "'gymnasium[classic-control]'"
_ATARI = "frame skip 4, sticky actions 0.25"
_ATARI_PAINTER = "wm.envs.renderers.atari:AtariRenderer"


def _named(*specs: EnvSpec) -> dict[str, EnvSpec]:
    return {spec.name: spec for spec in specs}


# Actions of Atari's reduced sets: 0 NOOP, 1 FIRE, 2 RIGHT (Pong's up), 3 LEFT (Pong's down).
NAMED = _named(
    EnvSpec(
        "Pong",
        "ALE/Pong-v5",
        package="ale_py",
        pip="ale-py",
        probe=labels.pong,
        painter=_ATARI_PAINTER,
        head="ordered",
        ordered=(3, 0, 2),
        rows_per_episode=1000,
        protocol=_ATARI,
    ),
    EnvSpec(
        "Breakout",
        "ALE/Breakout-v5",
        package="ale_py",
        pip="ale-py",
        probe=labels.breakout,
        painter=_ATARI_PAINTER,
        head="ordered",
        ordered=(3, 0, 2),
        serve=1,
        rows_per_episode=260,
        protocol=_ATARI,
    ),
    EnvSpec(
        "LunarLander",
        "LunarLander-v3",
        package="Box2D",
        pip=_BOX2D,
        probe=labels.lunar_lander,
        painter="wm.envs.renderers.lunar_lander:LunarLanderRenderer",
        fast=True,
        rows_per_episode=110,
        protocol="1000-step limit",
    ),
    EnvSpec(
        "CarRacing",
        "CarRacing-v3",
        package="Box2D",
        pip=_BOX2D,
        probe=labels.car_racing,
        painter="wm.envs.renderers.car_racing:CarRacingRenderer",
        fast=True,
        rows_per_episode=1001,
        max_idle=100,
        walk_low=(-1.0, -0.5, -2.0),  # steering, gas, brake: a walk within the box brakes as much as it drives
        protocol="1000-step limit, random tracks",
    ),
    EnvSpec(
        "CartPole",
        "CartPole-v1",
        package="pygame",
        pip=_CLASSIC,
        probe=labels.cart_pole,
        painter="wm.envs.renderers.classic_control:CartPoleRenderer",
        rows_per_episode=30,
        protocol="500-step limit",
    ),
    EnvSpec(
        "Acrobot",
        "Acrobot-v1",
        package="pygame",
        pip=_CLASSIC,
        probe=labels.acrobot,
        painter="wm.envs.renderers.classic_control:AcrobotRenderer",
        rows_per_episode=500,
        protocol="500-step limit",
    ),
    EnvSpec(
        "Catch",
        "wm.envs.catch:Catch-v0",
        package="gymnasium",
        pip="gymnasium",
        probe=labels.catch,
        rows_per_episode=8,
        protocol="7 steps",
    ),
)


def find(name: str) -> EnvSpec:
    """The environment called `name`: one of ours, any id of gymnasium's registry, or `module:id`.

    Raises UsageProblem if it is none of them, with the closest name.
    """
    if name in NAMED:
        return NAMED[name]
    _register_atari()
    module, colon, _ = name.rpartition(":")  # gymnasium's own form for environments outside its registry
    if colon and importlib.util.find_spec(module) is None:
        raise MissingPackage(f"{name} needs the module {module}, which is not installed; install what provides it.")
    known = gym.registry.keys()
    if colon or name in known:
        if name.startswith("ALE/") and name.endswith("-v5"):
            return EnvSpec(name, name, package="ale_py", pip="ale-py", painter=_ATARI_PAINTER, protocol=_ATARI)
        return EnvSpec(name, name, package="gymnasium", pip="gymnasium")
    by_lower = {candidate.lower(): candidate for candidate in (*known, *NAMED)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[close[0]]}?" if close else "use one of ours or any gymnasium id."
    raise UsageProblem(f"environment {name!r} is unknown ({', '.join(NAMED)} are known by name); {hint}")


def _register_atari() -> None:
    if importlib.util.find_spec("ale_py") is not None:
        import ale_py

        gym.register_envs(ale_py)


@dataclass(frozen=True)
class EnvConfig:
    """All that is needed to build an environment again, in any process. It is part of a dataset's recipe."""

    name: str
    size: int = 64
    gray: bool = False
    action_space: str = "auto"
    render: str = "exact"
    observation: str = "rgb"
    action_repeat: int = 1

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a recipe."""
        return asdict(self)

    def spec(self) -> EnvSpec:
        """What the catalogue knows of it."""
        return find(self.name)

    @property
    def rows_per_episode(self) -> int:
        """About how many actions an episode of random play takes."""
        return -(-self.spec().rows_per_episode // self.action_repeat)

    @property
    def max_idle(self) -> int:
        """After how many actions without a positive reward a training episode may as well end; 0: never."""
        return -(-self.spec().max_idle // self.action_repeat)

    def make(self, labelled: bool = False) -> PixelEnv:
        """Build the environment and wrap it to show square frames, with labels in its info if asked for.

        `render` is the renderer: gymnasium (the unmodified environment), exact (the same pixels, drawn by us where that
        is faster) or fast. Raises MissingPackage with the pip line, or UsageProblem where the environment has no
        pixels, not these actions or no fast renderer, or where motion should have a single channel.
        """
        spec = self.spec()
        if self.render == "fast" and not spec.fast:
            quick = ", ".join(name for name, known in NAMED.items() if known.fast)
            raise UsageProblem(f"--render is fast but {self.name} has no fast path ({quick} have); use --render exact.")
        if self.observation == "motion" and self.gray:
            raise UsageProblem("--observation motion has three gray channels already; leave out --gray.")
        env, painter = self._painted(spec) if self.render != "gymnasium" and spec.painter else self._shown()
        probe = spec.probe if labelled else None
        return PixelEnv(
            env,
            painter,
            size=self.size,
            gray=self.gray,
            observation=self.observation,
            probe=probe,
            action_repeat=self.action_repeat,
        )

    def _shown(self) -> tuple[gym.Env[Any, Any], Renderer]:
        env = self._build()
        observed = _is_image(env.observation_space)
        if not observed:
            env.close()
            env = self._build(render_mode="rgb_array")
        return env, GymnasiumRenderer(env, self.size, observed)

    def _painted(self, spec: EnvSpec) -> tuple[gym.Env[Any, Any], Renderer]:
        painter = self._painter(spec)
        env = self._build(painter.entry_point, render_mode="rgb_array")
        arguments = (self.render == "fast",) if spec.fast else ()
        return env, painter(env.unwrapped, self.size, *arguments)

    def make_unrendered(self) -> gym.Env[Any, Any]:
        """The environment without pictures, for players that do not look: the same rewards and ends, nothing drawn."""
        spec = self.spec()
        return self._build(self._painter(spec).entry_point if spec.painter else None)

    def _painter(self, spec: EnvSpec) -> Any:
        self._require_package(spec)
        module, _, name = spec.painter.partition(":")
        return getattr(importlib.import_module(module), name)

    def _require_package(self, spec: EnvSpec) -> None:
        if importlib.util.find_spec(spec.package) is None:
            raise MissingPackage(f"{self.name} needs a package that is not installed; run `pip install {spec.pip}`.")

    def _build(self, entry_point: Any = None, **options: Any) -> gym.Env[Any, Any]:
        spec = self.spec()
        self._require_package(spec)
        if spec.env_id.startswith("ALE/"):
            _register_atari()
            _quiet_atari()
        if self.action_space != "auto":
            if not spec.offers_both_action_spaces:
                raise UsageProblem(f"--action-space is {self.action_space!r} but {self.name} has one; leave it out.")
            options["continuous"] = self.action_space == "continuous"
        made: Any = spec.env_id
        if entry_point is not None:
            made = copy.deepcopy(gym.spec(spec.env_id))
            made.entry_point = entry_point
        try:
            return gym.make(made, disable_env_checker=True, **options)
        except gym.error.DependencyNotInstalled as error:
            raise MissingPackage(f"{self.name} needs a package that is not installed: {error}") from None
        except (gym.error.Error, TypeError, ValueError) as error:
            raise UsageProblem(f"{self.name} cannot be built: {error}") from None


def _is_image(space: gym.Space[Any]) -> bool:
    is_bytes = isinstance(space, gym.spaces.Box) and space.dtype == "uint8"
    return is_bytes and space.shape is not None and len(space.shape) == 3 and space.shape[-1] in (1, 3)


def _quiet_atari() -> None:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
