"""Trains learners of stable-baselines3, and keeps the policy they have at every cut. Needs the extra `sb3`."""

import json
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.atari_wrappers import ClipRewardEnv, EpisodicLifeEnv, FireResetEnv, NoopResetEnv
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper

from benchmarks.peers.settings import zoo
from benchmarks.peers.sights import Sight, open_sight
from wm.artifacts import durable
from wm.envs.registry import EnvConfig
from wm.errors import UsageProblem
from wm.rollouts.agents import auto_fire_for
from wm.rollouts.loop import EpisodeJob

LEARNERS = {"ppo": PPO, "dqn": DQN}
RECENT = 100  # episodes, of which a learning curve shows the mean
POINT_EVERY = 20.0  # CPU seconds, between two points of a learning curve
KEPT_EVERY = 60.0  # CPU seconds, which a kill loses
PROGRESS = "progress.json"


class _Game(gym.Env[Any, Any]):
    """Frames of an Atari game, and what stable-baselines3's wrappers ask of it besides."""

    def __init__(self, env: EnvConfig) -> None:
        self._frames = env.make()
        self.action_space, self.observation_space = self._frames.action_space, self._frames.observation_space
        game: Any = self._frames.env.unwrapped
        self.ale, self.get_action_meanings = game.ale, game.get_action_meanings

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._frames.reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._frames.step(action)


def _make_env(env: EnvConfig) -> gym.Env[Any, Any]:
    """An environment to learn in; Atari's with the zoo's wrappers but for frame skip, which the environment has."""
    if not env.spec().is_atari:
        return Monitor(env.make())
    wrapped = EpisodicLifeEnv(NoopResetEnv(Monitor(_Game(env))))
    return ClipRewardEnv(FireResetEnv(wrapped))


class _Seen(VecEnvWrapper):
    """Environments whose observations are what a sight makes of their frames."""

    def __init__(self, venv: VecEnv, sight: Sight) -> None:
        super().__init__(venv, sight.space)
        self._sight = sight

    def reset(self) -> NDArray[Any]:
        for index in range(self.num_envs):
            self._sight.begin(index)
        return self._sight.see(self.venv.reset())

    def step_wait(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], list[dict[str, Any]]]:
        frames, rewards, ends, infos = self.venv.step_wait()
        for index in np.flatnonzero(ends).tolist():
            infos[index]["terminal_observation"] = self._sight.last(index, infos[index]["terminal_observation"])
            self._sight.begin(index)
        return self._sight.see(frames), rewards, ends, infos


class PeerAgent:
    """A trained policy of stable-baselines3, as `wm evaluate` plays agents. As in the zoo, PPO draws its actions in
    Atari's games and takes the likeliest elsewhere; DQN takes the best."""

    def __init__(self, model: BaseAlgorithm, sight: Sight, num_envs: int) -> None:
        self.num_envs = num_envs
        self._model, self._sight = model, sight
        spec = sight.env.spec()
        self._likeliest = not (spec.is_atari and isinstance(model, PPO))
        self._auto_fire = auto_fire_for(spec.fire_action, num_envs)
        torch.manual_seed(0)  # of the actions drawn

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        """A new episode."""
        self._sight.begin(env_index)
        if self._auto_fire is not None:
            self._auto_fire.begin(env_index)

    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> NDArray[Any]:
        """One action per environment."""
        actions, _ = self._model.predict(self._sight.see(frames), deterministic=self._likeliest)
        if self._auto_fire is not None:
            self._auto_fire.serve(actions, infos)
        return actions


class _Keeper(BaseCallback):
    """Keeps the policy at every cut and once a minute, and what was learned so far in progress.json; ends the training
    after the last cut. It looks between two updates."""

    def __init__(self, folder: Path, progress: dict[str, Any], cuts: Sequence[float]) -> None:
        super().__init__()
        self._folder, self._progress, self._cuts = folder, progress, cuts
        self._before = progress["spent"], progress["env_steps"]
        self._recent = deque[float](progress["recent"], RECENT)
        self._next_point = self._next_kept = progress["spent"] + POINT_EVERY

    def _on_step(self) -> bool:
        self._recent.extend(info["episode"]["r"] for info in self.locals["infos"] if "episode" in info)
        return bool(cuts_left(self._progress, self._cuts))

    def _on_rollout_start(self) -> None:
        self._look()

    def _look(self, ended: bool = False) -> None:
        progress = self._progress
        progress["spent"] = self._before[0] + time.process_time()
        progress["env_steps"] = self._before[1] + sum(self.training_env.env_method("get_total_steps"))
        progress["recent"], progress["ended"] = list(self._recent), ended
        reached = [cut for cut in cuts_left(progress, self._cuts) if ended or progress["spent"] >= 60 * cut]
        if self._recent and (reached or progress["spent"] >= self._next_point):
            self._next_point = progress["spent"] + POINT_EVERY
            point = progress["spent"] / 60, progress["env_steps"], float(np.mean(self._recent))
            progress["curve"].append([round(point[0], 2), point[1], round(point[2], 2)])
        if reached or progress["spent"] >= self._next_kept:
            self._next_kept = progress["spent"] + KEPT_EVERY
            self._keep(reached)

    def _keep(self, reached: Sequence[float]) -> None:
        progress, name = self._progress, f"policy-{self.model.num_timesteps}.zip"
        staged = self._folder / "unfinished.zip"
        self.model.save(staged)
        staged.replace(self._folder / name)
        progress["policy"] = name
        for cut in reached:
            progress["cuts"][str(cut)] = {"policy": name} | {key: progress[key] for key in ("spent", "env_steps")}
        durable.write_json(self._folder / PROGRESS, progress)
        needed = {name, *(cut["policy"] for cut in progress["cuts"].values())}
        for path in self._folder.glob("policy-*.zip"):
            if path.name not in needed:
                path.unlink()

    def finish(self) -> None:
        """The zoo's steps are played: the policy stands for the cuts that are left."""
        if cuts_left(self._progress, self._cuts):
            self._look(ended=True)


def cuts_left(progress: dict[str, Any], cuts: Sequence[float]) -> list[float]:
    """The cuts that a training has not come to."""
    return [cut for cut in cuts if str(cut) not in progress["cuts"]]


def load_policy(path: Path, method: str) -> BaseAlgorithm:
    """A policy that a training kept."""
    learner = _learner(method)
    return learner.load(path, device="cpu", **({"buffer_size": 1} if learner is DQN else {}))


def _learner(method: str) -> type[PPO] | type[DQN]:
    return LEARNERS[method.split("-")[1]]


def train(
    folder: Path, env: str, method: str, seed: int, cuts: Sequence[float], vae: Path | None, before: tuple[float, int]
) -> dict[str, Any]:
    """Train until the last of the `cuts`, in minutes, or until the zoo's steps are played. The V in the folder `vae`
    took the CPU seconds and the environment steps `before`. PPO continues from what a training left in `folder`.

    Returns the progress: a learning curve of (minutes, environment steps, mean return), and for each cut when it came
    and which file has its policy.
    """
    progress = _read(folder)
    if progress is not None and (progress["ended"] or not cuts_left(progress, cuts)):
        return _with_cuts(progress, cuts)
    late = [cut for cut in cuts_left(progress, cuts) if 60 * cut < progress["spent"]] if progress is not None else []
    if late:
        raise UsageProblem(
            f"{folder} has trained for {progress['spent'] / 60:.1f} minutes and kept no policy at {late[0]}; give "
            "--minutes as before, or remove it to train again."
        )
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    settings = dict(zoo(method, env))
    timesteps, linear, count = (settings.pop(name) for name in ("timesteps", "linear", "n_envs"))
    sight = open_sight(method, env, count, vae)
    envs = _Seen(DummyVecEnv([lambda: _make_env(sight.env)] * count), sight)
    learner = _learner(method)
    if progress is not None and learner is PPO:
        model = PPO.load(folder / progress["policy"], envs, device="cpu")
        model.set_random_seed(seed + model.num_timesteps)
    else:
        if progress is not None:
            print(f"{env} {method}: a replay is not kept, so the training starts anew.", flush=True)
        names = ("spent", "env_steps", "curve", "recent", "cuts", "ended")
        progress = dict(zip(names, (*before, [], [], {}, False), strict=True))
        policy = "MlpPolicy" if method.endswith("latents") else "CnnPolicy"
        settings |= {name: _falling(first) for name, first in linear.items()}
        model = learner(policy, envs, seed=seed, device="cpu", **settings)
    keeper = _Keeper(folder, progress, cuts)
    model.learn(timesteps - model.num_timesteps, keeper, reset_num_timesteps=False)
    keeper.finish()
    envs.close()
    return progress


def _falling(first: float) -> Callable[[float], float]:
    return lambda remaining: remaining * first


def _with_cuts(progress: dict[str, Any], cuts: Sequence[float]) -> dict[str, Any]:
    """A training that played all of the zoo's steps has its last policy at every later cut."""
    last = {name: progress[name] for name in ("policy", "spent", "env_steps")}
    return progress | {"cuts": dict.fromkeys(map(str, cuts), last) | progress["cuts"]}


def _read(folder: Path) -> dict[str, Any] | None:
    path = folder / PROGRESS
    return json.loads(path.read_text()) if path.exists() else None
