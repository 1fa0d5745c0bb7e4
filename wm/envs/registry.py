"""Environments by name, and how one is built with frames as observations.

A known environment (wm/envs/known_envs.py) has labels, a renderer of ours and more; any other gymnasium id works too.
"""

import difflib
import importlib
import math
import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, lru_cache
from typing import Any

import gymnasium as gym

from wm import extras
from wm.actions import ActionSpace
from wm.envs import frame_source, registration
from wm.envs.checked_env import CheckedEnv, as_number
from wm.envs.code import EnvCode
from wm.envs.known_envs import ATARI_PROTOCOL, ATARI_RENDERER, KNOWN_ENVS, EnvSpec
from wm.envs.labels import lives_at_start
from wm.envs.noop_start import NoopStart
from wm.envs.pixel_env import GymnasiumRenderer, PixelEnv, Renderer
from wm.errors import MissingPackage, RecipeMismatch, UsageProblem

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # Box2D and classic control draw off screen; no display is needed
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # SDL complains on stderr when it is unset


_require_versions = cache(extras.require_versions)  # whatever builds an environment; an error is not kept


def find_env(name: str) -> EnvSpec:
    """The environment called `name`: a known one, any id of gymnasium's registry, or `module:id`.

    Raises UsageProblem with the closest name if it is none of them. The module is imported when the environment is
    built.
    """
    if name in KNOWN_ENVS:
        return KNOWN_ENVS[name]
    _register_atari()
    registration.require_form(name)
    if ":" in name or name in gym.registry:
        if name.startswith("ALE/") and name.endswith("-v5"):
            return EnvSpec(name, name, package="ale_py", pip="ale-py", renderer=ATARI_RENDERER, protocol=ATARI_PROTOCOL)
        return EnvSpec(name, name, package="gymnasium", pip="gymnasium")
    by_lower = {candidate.lower(): candidate for candidate in (*gym.registry, *KNOWN_ENVS)}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[close[0]]}?" if close else "use one of these or any gymnasium id."
    raise UsageProblem(f"environment {name!r} is unknown ({', '.join(KNOWN_ENVS)} are known by name); {hint}")


def _register_atari() -> None:
    if extras.exists("ale_py"):
        import ale_py

        gym.register_envs(ale_py)


PLAYED = ("max_steps", "envs_per_process", "sticky")  # fields that change no observation
_NEWER = ("frames", *PLAYED, "mask")  # fields of EnvConfig that recipes did not always have


@dataclass(frozen=True)
class EnvConfig:
    """All that is needed to build an environment in any process. It is part of a dataset's recipe.

    `frames` says where frames come from, without a renderer of ours: observation, render, or auto, which takes
    observations that are images. Episodes are truncated after `max_steps` actions (0: at the environment's own limit).
    `envs_per_process` is how many a process may play in turn (0: as many as it likes). Without `sticky` actions an
    Atari game begins with no-ops, as wm/envs/noop_start.py says.
    """

    name: str
    # 64 pixels, as in Ha & Schmidhuber (2018).
    size: int = 64
    gray: bool = False
    action_space: str = "auto"
    render: str = "exact"
    observation: str = "rgb"
    action_repeat: int = 1
    frames: str = "auto"
    max_steps: int = 0
    envs_per_process: int = 0
    mask: str = "none"
    sticky: bool = True

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a recipe. The newer fields are left out at their defaults: earlier recipes stay equal."""
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if name not in _NEWER or value != defaults[name]}

    @classmethod
    def of_recipe(cls, recipe: dict[str, Any]) -> "EnvConfig":
        """The environment of a dataset, with the source of frames that was chosen when it was collected."""
        return cls(**{"frames": recipe.get("frames", "auto"), **recipe["env"]})

    def spec(self) -> EnvSpec:
        """What is known of the environment."""
        return find_env(self.name)

    @property
    def reward_threshold(self) -> float | None:
        """The mean return at which gymnasium calls the environment solved; None where it names no finite number, or
        where the environment is unknown, as that of a run from another machine may be."""
        try:
            registered = registration.registered(self.spec().env_id)
        except UsageProblem:
            return None
        threshold = math.nan if registered is None else as_number(registered.reward_threshold)
        return threshold if math.isfinite(threshold) else None

    @property
    def hidden_labels(self) -> Sequence[str]:
        """The labels that a single frame does not show; none where the environment is unknown."""
        try:
            probe = self.spec().probe
        except UsageProblem:
            return ()
        return probe.hidden if probe else ()

    @property
    def random_steps(self) -> int:
        """About how many actions an episode of random play takes."""
        return -(-self.spec().random_steps // self.action_repeat)

    @property
    def max_idle(self) -> int:
        """Actions without a positive reward after which a training episode is truncated; 0: never."""
        return -(-self.spec().max_idle // self.action_repeat)

    def longest(self, own_limit: int) -> int:
        """The most actions of an episode that gymnasium truncates after `own_limit` environment steps (0: never)."""
        # Ten times a random episode where nothing truncates: it bounds pages that are played by hand, and estimates.
        return self.max_steps or -(-(own_limit or 10 * self.spec().random_steps) // self.action_repeat)

    @property
    def limit(self) -> int:
        """Actions after which its episodes are truncated, by gymnasium or by `max_steps`; 0: never."""
        return self.shorter(-(-_inspect(self.name, self.action_space)[2] // self.action_repeat))

    def shorter(self, max_steps: int) -> int:
        """The smaller of two limits of an episode's actions, this and the environment's; 0: there is none."""
        return min(max_steps or self.max_steps, self.max_steps or max_steps)

    def make(self, labelled: bool = False, filmed: bool = False) -> PixelEnv:
        """Build the environment with square frames as observations, and with labels in its info where asked for. If it
        is `filmed`, gymnasium renders it, so that frames and screen are one picture; it also renders where its
        observations are pictures, which may be smaller than its screen.

        `render` is the renderer: gymnasium (the unmodified environment), exact (the same pixels from a faster renderer
        of ours, if there is one) or fast. Raises MissingPackage with the pip line; UsageProblem where the environment
        lacks pixels, this source of frames, this action space or a fast renderer; and UsageProblem for motion in gray.
        """
        spec = self.spec()
        if self.render == "fast" and not spec.has_fast_renderer:
            fast = ", ".join(name for name, known in KNOWN_ENVS.items() if known.has_fast_renderer)
            raise UsageProblem(
                f"--render is fast but {self.name} has no fast renderer ({fast} have one); use --render exact."
            )
        self.require_channels()
        ours = self.render != "gymnasium" and spec.renderer and not filmed
        env, renderer = self._make_renderer(spec) if ours else self._make_gymnasium_renderer(filmed)
        return PixelEnv(
            env,
            renderer,
            size=self.size,
            gray=self.gray,
            observation=self.observation,
            mask=self.mask,
            probe=spec.probe if labelled else None,
            counts_lives=labelled and spec.is_atari and lives_at_start(env.unwrapped) > 0,
            action_repeat=self.action_repeat,
        )

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of a frame."""
        return self.size, self.size, 1 if self.gray else 3

    def require_channels(self) -> None:
        """Raise UsageProblem for motion in gray."""
        if self.observation == "motion" and self.gray:
            raise UsageProblem(
                "observation is motion, which has three gray channels already, but gray is true; leave out --gray, or "
                "give --set gray=false."
            )

    def _make_gymnasium_renderer(self, filmed: bool) -> tuple[CheckedEnv, Renderer]:
        env = self._build()
        renders = frame_source.renders_pictures(env)
        observed = frame_source.are_observations(self.name, self.frames, env, renders)
        if not observed or (filmed and renders):
            env.close()
            try:
                env = self._build(render_mode="rgb_array")
            except UsageProblem:
                if observed:  # it only says that it renders
                    env = self._build()
                elif renders:
                    raise
                else:
                    raise frame_source.no_pictures(self.name, self.frames, env) from None
        return env, GymnasiumRenderer(env, self.name, self.size, observed)

    def _make_renderer(self, spec: EnvSpec) -> tuple[CheckedEnv, Renderer]:
        renderer = self._renderer_class(spec)
        env = self._build(renderer.entry_point, render_mode="rgb_array")
        arguments = (self.render == "fast",) if spec.has_fast_renderer else ()
        return env, renderer(env.unwrapped, self.size, *arguments)

    def difference(self, other: "EnvConfig", ignored: tuple[str, ...] = ()) -> tuple[str, str, str] | None:
        """The first field in which what another config shows or does differs, with the values of both; None without a
        difference. Renderers may differ, and a source of frames from one that was not chosen."""
        ours, theirs = asdict(self), asdict(other)
        ignored += ("render", *PLAYED, *["frames"] * ("auto" in (self.frames, other.frames)))
        names = (name for name in ours if name not in ignored and ours[name] != theirs[name])
        return next(((name, str(ours[name]).lower(), str(theirs[name]).lower()) for name in names), None)

    @property
    def code(self) -> EnvCode:
        """The code of the environment as it is today, which a recipe has besides this config."""
        return _inspect(self.name, self.action_space)[1]

    @property
    def actions(self) -> ActionSpace:
        """The actions that the environment takes today."""
        return _inspect(self.name, self.action_space)[0]

    def as_recipe(self, space: ActionSpace, labels: Sequence[str] = ()) -> dict[str, Any]:
        """What a dataset's recipe says of its environment: this config, the actions `space`, names of labels, and the
        code."""
        spec, code = self.spec(), self.code
        recipe = {
            "env": replace(self, frames="auto").as_json(),
            "env_id": spec.env_id,
            "crop": None,
            # ALE's v5 environments skip four frames themselves, so a step of theirs is four of the emulator.
            "frame_skip": 4 if spec.is_atari else 1,
            "action_space": space.as_json(),
            "labels": list(labels),
            "packages": code.packages,
        }
        if code.sources:
            recipe["sources"] = code.sources
        if self.frames != "auto":
            recipe["frames"] = self.frames
        return recipe

    def require_actions(self, space: ActionSpace, trained: str) -> None:
        """Raise RecipeMismatch unless the environment takes these actions today; `trained` names what was trained with
        them."""
        if (now := self.actions) != space:
            raise RecipeMismatch(
                f"{self.name} takes {now} but {trained} was trained with {space}; undo the change of the environment, "
                "or collect and train again."
            )

    def make_unrendered(self) -> CheckedEnv:
        """The environment for policies that ignore frames, which nobody draws. Rewards and ends are the same: one that
        renders its frames has its render mode here too, for without it an environment may step otherwise, or not at
        all."""
        spec = self.spec()
        if spec.renderer:
            return self._build(self._renderer_class(spec).entry_point)
        return self._build(render_mode="rgb_array") if _renders_frames(self) else self._build()

    def _renderer_class(self, spec: EnvSpec) -> Any:
        self._require_package(spec)
        module, _, name = spec.renderer.partition(":")
        return getattr(importlib.import_module(module), name)

    def _require_package(self, spec: EnvSpec) -> None:
        if not extras.exists(spec.package):
            raise MissingPackage(f"{self.name} needs a package that is not installed; run `pip install {spec.pip}`.")

    def _build(self, entry_point: Any = None, **options: Any) -> CheckedEnv:
        spec = self.spec()
        self._require_package(spec)
        if spec.is_atari:
            _register_atari()
            _quiet_atari()
        if self.action_space != "auto":
            if not spec.has_both_action_spaces:
                raise UsageProblem(
                    f"--action-space is {self.action_space!r} but {self.name} has one action space; leave it out."
                )
            options["continuous"] = self.action_space == "continuous"
        if not self.sticky:
            if not spec.is_atari:
                raise UsageProblem(f"sticky_actions is false but {self.name} is no Atari game; leave it out.")
            options["repeat_action_probability"] = 0.0
        _require_versions()
        built = registration.build(spec.env_id, self.name, entry_point, options)
        limit = self.max_steps * self.action_repeat
        return CheckedEnv(built if self.sticky else NoopStart(built), self.name, limit)


@lru_cache(maxsize=64)  # a process does not import an environment's code again
def _inspect(name: str, action_space: str) -> tuple[ActionSpace, EnvCode, int]:
    """The actions, the code, and the own limit of an environment. Builds it, without a renderer."""
    config = EnvConfig(name, action_space=action_space)
    with closing(config._build()) as env:
        return ActionSpace.of(env.action_space), EnvCode.of(env, config.spec().env_id), env.own_limit


@lru_cache(maxsize=64)
def _renders_frames(config: EnvConfig) -> bool:
    """Whether an environment without a renderer of ours renders its frames, as its observations are no pictures."""
    with closing(config._build()) as env:
        renders = frame_source.renders_pictures(env)
        return renders and not frame_source.are_observations(config.name, config.frames, env, renders)


def _quiet_atari() -> None:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def require_choice_of_frames(config: EnvConfig) -> None:
    """Raise UsageProblem if a source of frames is chosen where a renderer of ours draws them."""
    if config.frames != "auto" and config.spec().renderer and config.render != "gymnasium":
        raise UsageProblem(
            f"--frames is {config.frames} but --render {config.render} draws {config.name} itself; add "
            "--render gymnasium, or leave out --frames."
        )


def require_same_observation(trained: EnvConfig, requested: EnvConfig) -> None:
    """Raise RecipeMismatch if `requested` has other frames or actions than V was trained with. The renderer may
    differ."""
    if difference := trained.difference(requested):
        name, before, now = difference
        raise RecipeMismatch(
            f"{name} is {now} but the controller's V was trained with {before}; collect with "
            f"`--set {name}={before}`, or train V, M and C on such episodes first."
        )
