"""Agents and environments as plain values, so that any process can build them and play."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stages.session import Session
from wm.envs.registry import EnvConfig
from wm.rollouts.loop import EpisodeJob, EpisodeResult, play, record
from wm.rollouts.policies import RandomPolicy
from wm.rollouts.workers import heartbeat
from wm.seeding import episode_seed

if TYPE_CHECKING:
    from wm.pretrained import ControllerConfig, TrainedDreamer
    from wm.rollouts.agents import DreamerAgent, VmcAgent

NUM_ENVS = 8  # environments in lockstep per process; fixed, because the batch's shape could change a sum's last bit


@dataclass(frozen=True)
class PolicySpec:
    """V and M in their folders, and the form of C. `fingerprint` names all that decides how it plays."""

    env: EnvConfig
    vae: Path
    mdnrnn: Path
    form: "ControllerConfig"
    fingerprint: str
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True)
class DreamerSpec:
    """A Dreamer in its folder."""

    env: EnvConfig
    folder: Path
    fingerprint: str


def trained_policy(session: Session) -> PolicySpec:
    """The trained player of an environment, for collecting with it."""
    from wm.artifacts.manifest import sha256_json
    from wm.pretrained import load_all

    vae, mdnrnn, controller = load_all(session.workspace)
    prints = [trained.artifact.fingerprint for trained in (vae, mdnrnn, controller)]
    return PolicySpec(
        vae.env,
        vae.artifact.folder,
        mdnrnn.artifact.folder,
        controller.config,
        sha256_json(prints),
        tuple(controller.parameters.tolist()),
    )


@lru_cache(maxsize=2)
def _models(player: PolicySpec) -> tuple[Any, Any, Any]:
    from wm.pretrained import build_controller, controller_memory, load_mdnrnn, load_vae

    vae = load_vae(player.vae, "wm train-vae")
    mdnrnn = load_mdnrnn(player.mdnrnn, "wm train-mdnrnn")
    return vae.model, controller_memory(mdnrnn, player.form), build_controller(mdnrnn, player.form, player.env)


@lru_cache(maxsize=2)
def _dreamer(player: DreamerSpec) -> "TrainedDreamer":
    from wm.pretrained import load_dreamer

    return load_dreamer(player.folder, "wm train-dreamer")


def make_agent(
    player: PolicySpec | DreamerSpec, num_envs: int, candidates: NDArray[np.float32] | None = None
) -> "VmcAgent | DreamerAgent":
    """Who plays in `num_envs` environments: a Dreamer, or V + M + C with the player's own parameters or with
    candidates' (N, P)."""
    from wm.rollouts.agents import DreamerAgent, VmcAgent

    if isinstance(player, DreamerSpec):
        trained = _dreamer(player)
        return DreamerAgent(trained.model, trained.space, num_envs, player.env.spec().fire_action)
    vae, mdnrnn, controller = _models(player)
    if candidates is None:
        candidates = np.array([player.parameters], np.float32)
    return VmcAgent(vae, mdnrnn, controller, candidates, num_envs)


@lru_cache(maxsize=2)  # candidates' and validations'
def _envs(recipe: EnvConfig, count: int) -> list[Any]:
    return [recipe.make() for _ in range(count)]


def play_jobs(
    player: PolicySpec,
    candidates: NDArray[np.float32],
    jobs: Sequence[EpisodeJob],
    max_steps: int = 0,
    max_idle: int = 0,
) -> list[EpisodeResult]:
    """Play jobs with candidates' parameters (N, P) in lockstep. Runs in a worker."""
    agent = make_agent(player, NUM_ENVS, candidates)
    return list(play(agent, _envs(player.env, NUM_ENVS), jobs, max_steps, max_idle, heartbeat))


def play_dreamer(player: DreamerSpec, jobs: Sequence[EpisodeJob]) -> list[EpisodeResult]:
    """Play jobs with a Dreamer in lockstep. Runs in a worker."""
    return list(play(make_agent(player, NUM_ENVS), _envs(player.env, NUM_ENVS), jobs, heartbeat=heartbeat))


def build_env(player: PolicySpec | DreamerSpec) -> Any:
    """An environment of the player's, one of those kept in this process."""
    return _envs(player.env, NUM_ENVS)[0]


def build_vae(player: PolicySpec) -> Any:
    """The player's V."""
    return _models(player)[0]


@dataclass(frozen=True)
class LatentTrajectory:
    """An episode as C saw it: T + 1 mean latents, actions and rewards, as rows of wm/episodes/schema.py."""

    means: NDArray[np.float32]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    terminated: bool


def encode_rollouts(player: PolicySpec, jobs: Sequence[EpisodeJob], max_steps: int) -> list[LatentTrajectory]:
    """Play jobs with the player's own parameters, one after the other, and keep what was seen. Runs in a worker."""
    import torch

    from wm.models.vae.inference import InferenceEncoder

    agent, env, eye, found = (
        make_agent(player, num_envs=1),
        build_env(player),
        InferenceEncoder(build_vae(player), NUM_ENVS),
        [],
    )
    for job in jobs:
        played = record(agent, env, job, agent.space.column, max_steps, heartbeat)
        parts = np.array_split(played.frames, max(len(played.frames) // NUM_ENVS, 1))
        means = np.concatenate([eye.see(torch.from_numpy(part)).numpy() for part in parts])
        found.append(LatentTrajectory(means, played.actions, played.rewards, played.terminated))
    return found


def play_random(recipe: EnvConfig, jobs: Sequence[EpisodeJob]) -> list[EpisodeResult]:
    """The random policy's episodes, in the bare gymnasium environment: it does not look. Runs in a worker."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = recipe.make_unrendered()
    from wm.actions import ActionSpace

    policy = RandomPolicy(ActionSpace.of(env.action_space))
    outcomes = list(play(policy, [env], jobs, heartbeat=heartbeat))
    env.close()
    return outcomes


def split_jobs(jobs: Sequence[EpisodeJob], workers: int) -> list[list[EpisodeJob]]:
    """Jobs in as many equal portions as there are workers, dealt like cards so that candidates are spread."""
    return [list(jobs[number::workers]) for number in range(min(workers, len(jobs)))]


def evaluation_jobs(episodes: int) -> list[EpisodeJob]:
    """The test episodes: the same seeds whoever plays, and whatever seed was trained with."""
    return [EpisodeJob(number, episode_seed("test", 0, "evaluate", number)) for number in range(episodes)]
