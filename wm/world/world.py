"""A world: the V, M and C of a run, for use from Python."""

from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from wm import extras
from wm.arguments import as_array, one_of, whole
from wm.artifacts import manifest
from wm.artifacts.workspace import Workspace
from wm.dreams.env import DreamConfig, DreamEnv, DreamVectorEnv
from wm.dreams.initial_states import LATENTS, latent_bounds, latents_of, load_latents
from wm.dreams.view import KINDS, View, decode
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents
from wm.episodes.schema import Episode
from wm.errors import MissingInput, RecipeMismatch, UsageProblem
from wm.evaluation.score import protocol_of
from wm.pretrained import ENCODED, TrainedController, TrainedMdnRnn, TrainedVae
from wm.runtime import Runtime
from wm.world.acting import Actor, Memory
from wm.world.dreaming import Dream, dream_along
from wm.world.environments import default_limit, dream_config, spec_of, view_of_latents
from wm.world.evaluation import Evaluation, evaluate_agent, evaluate_policy
from wm.world.real_env import RealEnv

MOST_DREAMS = 1 << 20  # at once: their latents and M's h are some GB then


class World:
    """V, M and C of a run. `wm.load` makes it; `controller` is None in a run without C.

    Shapes: S frame side, C channels, Z latents, H hidden, T steps.
    """

    def __init__(
        self, workspace: Workspace, vae: TrainedVae, mdnrnn: TrainedMdnRnn, controller: TrainedController | None = None
    ) -> None:
        self.vae, self.mdnrnn, self.controller = vae, mdnrnn, controller
        self._workspace = workspace

    def __getstate__(self) -> dict[str, Any]:
        """Without what is packed for this process alone: it is made again where it is used."""
        return {name: value for name, value in vars(self).items() if name != "_actor"}

    def __repr__(self) -> str:
        agent = self.controller.artifact.folder.name if self.controller else None
        return f"World(run={str(self.run)!r}, env={self.env_name!r}, agent={agent!r})"

    @property
    def run(self) -> Path:
        """The folder of the run."""
        return self._workspace.run

    @property
    def env_name(self) -> str:
        """The environment's name, as `--env` takes it."""
        return self._workspace.env

    @property
    def action_space(self) -> gym.Space[Any]:
        """The environment's actions: Discrete, or a flat Box."""
        return self.mdnrnn.space.to_gymnasium()

    @cached_property
    def dataset(self) -> Dataset:
        """The episodes V was trained on, opened when they are first used; those of them that came along with a shared
        run. Raises MissingInput where there are none, RecipeMismatch for other ones."""
        dataset = self.vae.open_episodes(self._workspace.datasets[0])
        if dataset.fingerprint_of_first(self.vae.episodes) != self.vae.artifact.inputs.get("episodes"):
            raise RecipeMismatch(
                f"{dataset.path} has other episodes than those {self.vae.artifact.folder} was trained on; give these "
                "to wm.load as data."
            )
        return dataset

    def episode(self, number: int) -> Episode:
        """Episode `number` of `dataset`, from 0: `frames` (T + 1, S, S, C), and `actions` and `rewards` whose last row
        is unused. Raises UsageProblem for other numbers."""
        dataset, first, number = self.dataset, 0, whole("episode", number, 0)
        if number >= dataset.episodes:
            raise UsageProblem(f"episode is {number}; {dataset.path} has the episodes 0 to {dataset.episodes - 1}.")
        for part in dataset.parts:
            count = len(part.table["ends"])
            if number < first + count:
                break
            first += count
        return dataset.episodes_of(part)[number - first]

    @cached_property
    def latents(self) -> Latents:
        """The latents M was trained on, in which dreams start; read when they are first used. In a run that was shared
        without them, those of the episodes that came along. Raises MissingInput where there are neither,
        RecipeMismatch where they have changed."""
        finished = (self.run / LATENTS / manifest.NAME).is_file()
        if finished or not self._workspace.datasets[0].exists():
            return load_latents(self._workspace, self.mdnrnn)
        return latents_of(self._workspace, self.vae, self.mdnrnn, self.dataset, Runtime(), "cpu")

    def encode(self, frames: ArrayLike) -> NDArray[np.float32]:
        """V's mean latents (..., Z) of frames (..., S, S, C) uint8. Raises UsageProblem for other frames."""
        model, images = self.vae.model, self._require_frames(as_array("frames", frames))
        flat = torch.from_numpy(np.ascontiguousarray(images).reshape(-1, *images.shape[-3:]))
        with torch.inference_mode():
            parts = [model.encode(part)[0] for part in flat.split(ENCODED) if len(part)]
        z: NDArray[np.float32] = torch.cat([torch.zeros(0, model.latent), *parts]).numpy()
        return z.reshape(*images.shape[:-3], model.latent)

    def decode(self, latents: ArrayLike) -> NDArray[np.uint8]:
        """V's frames (..., S, S, C) uint8 of latents (..., Z). Raises UsageProblem for other shapes."""
        z = self._require_latents(as_array("latents", latents), (self.vae.model.latent,))
        frames = decode(self.vae.model, torch.from_numpy(z.reshape(-1, z.shape[-1])))
        return frames.reshape(*z.shape[:-1], *frames.shape[1:])

    def dream(
        self, actions: ArrayLike, start: tuple[int, int] | None = None, seed: int = 0, temperature: float = 1.0
    ) -> Dream:
        """What M dreams along T actions, (T,) integers or (T, dimensions), from a real start: (episode, step) of the
        latents M was trained on, or one drawn from `seed`. M has seen up to eight real steps before it.

        M's samples depend on `seed`; a lower `temperature` makes them vary less. Raises UsageProblem for what is no
        action, no start or no temperature.
        """
        return dream_along(self.vae, self.mdnrnn, self.latents, self._bounds, actions, start, seed, temperature)

    def act(
        self, observation: ArrayLike, memory: Memory | None = None, info: dict[str, Any] | None = None, seed: int = 0
    ) -> tuple[Any, Memory]:
        """C's action and its memory, which the episode's next call takes; None begins an episode.

        `observation` is what an environment of this world returned: a frame (S, S, C) uint8, latents (Z,), or latents
        and h (Z + H,), of which C computes h itself. `info` is the environment's, which tells of lost lives where the
        player serves. A C that acts by samples draws an episode's from `seed`. Raises MissingInput without a C, and
        UsageProblem for other observations.
        """
        actor, values, latent = self._actor, as_array("observation", observation), self.vae.model.latent
        frame_or_z: NDArray[Any]
        if values.dtype == np.uint8 or values.ndim == 3:
            frame_or_z, dimensions = self._require_frames(values), 3
        else:
            widths, dimensions = (latent, latent + self.mdnrnn.model.hidden), 1
            frame_or_z = self._require_latents(values, widths)[..., :latent]
        if values.ndim != dimensions:
            raise UsageProblem(f"observation has shape {values.shape}; expected that of one environment.")
        return actor.act(frame_or_z, memory, info, whole("seed", seed, 0))

    def env(
        self, obs: str = "z", render_mode: str | None = None, temperature: float = 1.0, max_steps: int | None = None
    ) -> DreamEnv:
        """M's dream as a gymnasium environment, from random real steps.

        `obs` is what is observed: `z` latents (Z,), `zh` latents and M's h (Z + H,), or `pixels` V's frames (S, S, C)
        uint8. Latents and h are within the bounds of real ones. A dream is truncated after `max_steps` actions, by
        default at the environment's limit, at most 1000. With render_mode "rgb_array" `render()` returns V's picture.
        """
        options = {"obs": obs, "temperature": temperature, "max_steps": max_steps}
        config = self._dreams(temperature, max_steps)
        env = DreamEnv(config, self.action_space, self._view(obs), render_mode)
        env.spec = self._spec("wm/Dream-v0", {**options, "render_mode": render_mode})
        return env

    def vector_env(
        self,
        num_envs: int,
        obs: str = "z",
        render_mode: str | None = None,
        temperature: float = 1.0,
        max_steps: int | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> DreamVectorEnv:
        """`num_envs` dreams as one gymnasium.vector.VectorEnv, computed as one batch; otherwise as `env`."""
        num_envs = whole("num_envs", num_envs, 1, most=MOST_DREAMS)
        config, view = self._dreams(temperature, max_steps), self._view(obs)
        return DreamVectorEnv(config, self.action_space, num_envs, view, autoreset_mode, render_mode)

    def sb3_env(self, num_envs: int, obs: str = "z", temperature: float = 1.0, max_steps: int | None = None) -> Any:
        """`num_envs` dreams as the VecEnv of stable-baselines3, in its VecMonitor, so that learners log returns. Raises
        MissingPackage without the extra `sb3`."""
        extras.require("sb3", "World.sb3_env")
        from wm.world.sb3 import monitored

        return monitored(self.vector_env(num_envs, obs, None, temperature, max_steps, AutoresetMode.SAME_STEP))

    def real_env(self, obs: str = "z", render_mode: str | None = None) -> RealEnv:
        """The real, unmodified environment with the observations that `env` has. Latents and h are clipped to the
        bounds they have there; with `pixels` the frames are real."""
        env = RealEnv(self._unmodified().make(), self.vae, self.mdnrnn, self._view(obs), render_mode)
        env.spec = self._spec("wm/Real-v0", {"obs": obs, "render_mode": render_mode})
        return env

    def evaluate(
        # 100 as in CONTRIBUTING.md: fewer are a preview.
        self,
        policy: Any = None,
        episodes: int = 100,
        obs: str = "z",
        runtime: Runtime | None = None,
    ) -> Evaluation:
        """The score of a policy in the unmodified environment, on the test episodes of `wm evaluate`.

        `policy` is a function of an observation, or an object whose `predict(observation, deterministic=True)` returns
        an action first, as a model of stable-baselines3; `obs` is what it observes. None is C and "random" the random
        policy, which observe by themselves. `runtime` shows progress and stops on request. Raises MissingInput without
        a C, and UsageProblem for fewer than two episodes, or an `obs` that nobody takes. A score of fewer than 100 is
        a preview.
        """
        if one_of("obs", obs, KINDS) != "z" and (policy is None or (isinstance(policy, str) and policy == "random")):
            raise UsageProblem(
                f"obs is {obs!r}, but {policy or 'C'} observes by itself; leave it out, or give a policy."
            )
        if policy is None:
            return evaluate_agent(self._workspace, self._require_controller().artifact.folder.name, episodes, runtime)
        if isinstance(policy, str) and policy == "random":
            limit = self.vae.env.max_steps * self.vae.env.action_repeat  # the random policy repeats nothing
            return evaluate_agent(self._workspace, policy, episodes, runtime, limit)
        env = self.real_env(obs)
        try:
            return evaluate_policy(env, policy, episodes, protocol_of(self.vae.env), runtime)
        finally:
            env.close()

    def _unmodified(self) -> EnvConfig:
        """The environment as gymnasium renders it."""
        return EnvConfig(**self.vae.env.as_json() | {"render": "gymnasium"})

    def _dreams(self, temperature: float, max_steps: int | None) -> DreamConfig:
        limit = self._limit if max_steps is None else max_steps
        return dream_config(self.mdnrnn, self.latents, temperature, limit)

    def _view(self, obs: str) -> View:
        if one_of("obs", obs, KINDS) == "pixels":
            return View.of_pixels(self.vae.model)
        return view_of_latents(obs, self.vae, self.mdnrnn, self.latents)

    def _spec(self, name: str, options: dict[str, Any]) -> EnvSpec:
        return spec_of(name, self.run, self._workspace.datasets, options)

    def _require_frames(self, frames: NDArray[Any]) -> NDArray[np.uint8]:
        model = self.vae.model
        shape = (model.size, model.size, model.channels)
        if frames.dtype != np.uint8 or frames.shape[-3:] != shape:
            raise UsageProblem(
                f"frames are {frames.dtype} of shape {frames.shape}; expected uint8 of shape (..., "
                f"{', '.join(map(str, shape))}), as {self.vae.artifact.folder} was trained on."
            )
        return frames

    def _require_latents(self, values: NDArray[Any], widths: tuple[int, ...]) -> NDArray[np.float32]:
        if not values.ndim or values.shape[-1] not in widths or values.dtype.kind not in "fiu":
            expected = " or ".join(f"(..., {width})" for width in widths)
            raise UsageProblem(f"latents are {values.dtype} of shape {values.shape}; expected numbers of {expected}.")
        # What overflows becomes infinite without a warning, and is refused below.
        with np.errstate(over="ignore"):
            latents = values.astype(np.float32)
        if not np.isfinite(latents).all():
            raise UsageProblem("latents have values that are NaN or infinite in 32 bits; expected finite numbers.")
        return latents

    def _require_controller(self) -> TrainedController:
        if self.controller is None:
            raise MissingInput(f"{self.run} has no C; run `{self._workspace.command('train-controller')}` first.")
        return self.controller

    @cached_property
    def _actor(self) -> Actor:
        return Actor(self.vae, self.mdnrnn, self._require_controller())

    @cached_property
    def _limit(self) -> int:
        return default_limit(self.vae.env)

    @cached_property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        return latent_bounds(self.latents)
