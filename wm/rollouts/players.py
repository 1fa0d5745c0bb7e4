"""Policies and environments as plain values, so that any process can build them and play."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wm.artifacts.workspace import Workspace
from wm.envs.registry import EnvConfig
from wm.errors import UsageProblem, WorkerFailed
from wm.rollouts.loop import EpisodeJob, EpisodeResult, play, record
from wm.rollouts.policies import RandomPolicy
from wm.rollouts.worker_process import heartbeat
from wm.rollouts.workers import Workers
from wm.seeding import episode_seed

if TYPE_CHECKING:
    from wm.envs.checked_env import CheckedEnv
    from wm.models.controller import ControllerConfig
    from wm.pretrained import TrainedDreamer, TrainedMdnRnn, TrainedVae
    from wm.rollouts.agents import DreamerAgent, VmcAgent

NUM_ENVS = 8  # environments in lockstep per process; fixed, because the batch's shape could change a sum's last bit


@dataclass(frozen=True)
class PolicySpec:
    """V and M by their folders, and C by its config and parameters. `fingerprint` identifies V and M, or also C. In
    `random_share` of the steps it holds a random action."""

    env: EnvConfig
    vae: Path
    mdnrnn: Path
    controller: "ControllerConfig"
    fingerprint: str
    parameters: tuple[float, ...] = ()
    # Of the steps of a controller that collects, RANDOM_SHARE in wm/settings/collect.py.
    random_share: float = 0.0


@dataclass(frozen=True)
class DreamerSpec:
    """A Dreamer by its folder."""

    env: EnvConfig
    folder: Path
    fingerprint: str


@dataclass(frozen=True)
class RandomSpec:
    """The random policy, in the bare gymnasium environment."""

    env: EnvConfig


Spec = PolicySpec | DreamerSpec | RandomSpec
Result = TypeVar("Result")


def policy_spec(
    vae: "TrainedVae",
    mdnrnn: "TrainedMdnRnn",
    controller: "ControllerConfig",
    parameters: Sequence[float] | NDArray[np.float32] = (),
    env: EnvConfig | None = None,
) -> PolicySpec:
    """V, M and a controller with these parameters (none: each job's candidate has its own), in V's environment or in
    `env`."""
    fingerprint = vae.artifact.fingerprint + mdnrnn.artifact.fingerprint
    floats = tuple(np.asarray(parameters).tolist())
    return PolicySpec(env or vae.env, vae.artifact.folder, mdnrnn.artifact.folder, controller, fingerprint, floats)


def trained_policy(workspace: Workspace, random_share: float, latest: bool) -> PolicySpec:
    """The trained V, M and C of an environment, for collecting with them and this share of random steps: the best C by
    validation, or the `latest` of a policy gradient. Raises UsageProblem for the latest of an evolved one."""
    from wm.artifacts.manifest import sha256_json
    from wm.run_models import load_all

    vae, mdnrnn, controller = load_all(workspace)
    fingerprints = [trained.artifact.fingerprint for trained in (vae, mdnrnn, controller)]
    config, parameters = controller.config, controller.parameters
    if latest:
        config, parameters = replace(config, sampled=True), controller.latest
        if not len(parameters):
            raise UsageProblem(
                f"--policy latest needs a C trained with --algo ppo but {controller.artifact.folder} was evolved; use "
                "--policy controller."
            )
    spec = policy_spec(vae, mdnrnn, config, parameters)
    return replace(spec, fingerprint=sha256_json(fingerprints), random_share=random_share)


@lru_cache(maxsize=2)
def _models(spec: PolicySpec) -> tuple[Any, Any, Any]:
    from wm.pretrained import build_controller, controller_memory, load_mdnrnn, load_vae

    vae = load_vae(spec.vae, "wm train-vae")
    mdnrnn = load_mdnrnn(spec.mdnrnn, "wm train-mdnrnn")
    return vae.model, controller_memory(mdnrnn, spec.controller), build_controller(mdnrnn, spec.controller, spec.env)


@lru_cache(maxsize=2)
def _dreamer(spec: DreamerSpec) -> "TrainedDreamer":
    from wm.pretrained import load_dreamer

    return load_dreamer(spec.folder, "wm train-dreamer")


def make_agent(
    spec: PolicySpec | DreamerSpec, num_envs: int, candidates: NDArray[np.float32] | None = None
) -> "VmcAgent | DreamerAgent":
    """An agent for `num_envs` environments: a Dreamer, or V + M + C with the spec's parameters or those of `candidates`
    (N, P)."""
    from wm.rollouts.agents import DreamerAgent, VmcAgent

    if isinstance(spec, DreamerSpec):
        trained = _dreamer(spec)
        return DreamerAgent(trained.model, trained.space, num_envs, spec.env.spec().fire_action)
    vae, mdnrnn, controller = _models(spec)
    if candidates is None:
        candidates = np.array([spec.parameters], np.float32)
    return VmcAgent(vae, mdnrnn, controller, candidates, num_envs, spec.random_share)


@lru_cache(maxsize=2)  # one for candidates, one for validations
def _envs(env: EnvConfig) -> list[Any]:
    """The environments of this process. Fewer than NUM_ENVS leave rows of the batch idle, which changes no result."""
    return [env.make() for _ in range(min(env.envs_per_process or NUM_ENVS, NUM_ENVS))]


def play_jobs(
    spec: Spec,
    candidates: NDArray[np.float32] | None,
    jobs: Sequence[EpisodeJob],
    max_steps: int = 0,
    max_idle: int = 0,
) -> list[EpisodeResult]:
    """Play jobs in lockstep, with the parameters of `candidates` (N, P) or the spec's own. Runs in a worker."""
    if isinstance(spec, RandomSpec):
        return _play_random(spec.env, jobs, max_steps)
    agent = make_agent(spec, NUM_ENVS, candidates)
    return list(play(agent, _envs(spec.env), jobs, max_steps, max_idle, heartbeat))


def _play_random(config: EnvConfig, jobs: Sequence[EpisodeJob], max_steps: int) -> list[EpisodeResult]:
    """The random policy needs no frames, so nothing is rendered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = config.make_unrendered()
    from wm.actions import ActionSpace

    policy = RandomPolicy(ActionSpace.of(env.action_space))
    results = list(play(policy, [_Unseen(env)], jobs, max_steps, heartbeat=heartbeat))
    env.close()
    return results


class _Unseen:
    """An environment at whose observations nobody looks: they may be anything, and another shape at every step."""

    def __init__(self, env: "CheckedEnv") -> None:
        self._env = env

    @property
    def steps(self) -> int:
        """Of the environment in this episode."""
        return self._env.steps

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        return (), self._env.reset(seed=seed)[1]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One action."""
        return (), *self._env.step(action)[1:]


def build_env(spec: PolicySpec | DreamerSpec) -> Any:
    """An environment of the policy's, one of those kept in this process."""
    return _envs(spec.env)[0]


def build_vae(spec: PolicySpec) -> Any:
    """The policy's V."""
    return _models(spec)[0]


@dataclass(frozen=True)
class LatentTrajectory:
    """An episode as C received it: T + 1 mean latents, actions and rewards, as rows of wm/episodes/schema.py."""

    means: NDArray[np.float32]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    env_steps: int
    terminated: bool


def encode_rollouts(spec: PolicySpec, jobs: Sequence[EpisodeJob], max_steps: int) -> list[LatentTrajectory]:
    """Play jobs with the spec's parameters, one after the other, and encode their frames. Runs in a worker."""
    import torch

    from wm.models.vae.inference import InferenceEncoder

    agent, env = make_agent(spec, num_envs=1), build_env(spec)
    encoder, trajectories = InferenceEncoder(build_vae(spec), NUM_ENVS), []
    for job in jobs:
        episode = record(agent, env, job, agent.space.column, max_steps, heartbeat)
        parts = np.array_split(episode.frames, max(len(episode.frames) // NUM_ENVS, 1))
        means = np.concatenate([encoder.encode(torch.from_numpy(part)).numpy() for part in parts])
        trajectories.append(
            LatentTrajectory(means, episode.actions, episode.rewards, episode.env_steps, episode.terminated)
        )
    return trajectories


def map_playing(
    workers: Workers, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Result]]:
    """`workers.map` of tasks that play, whose first argument is the policy. A WorkerFailed names the environment."""
    try:
        yield from workers.map(function, tasks)
    except WorkerFailed as failed:
        raise WorkerFailed(failed.task, failed.why, f"playing {tasks[0][0].env.name}") from None


def play_tasks(
    workers: Workers,
    spec: Spec,
    candidates: NDArray[np.float32],
    jobs: Sequence[EpisodeJob],
    parts: int = 1,
    *more: int,
) -> list[tuple[Any, ...]]:
    """Tasks of `play_jobs` with these jobs and the arguments that come after: for workers that take equal shares,
    `parts` tasks each."""
    if workers.share:
        return [(spec, candidates, portion, *more) for portion in split_jobs(jobs, workers.count * parts)]
    size = portion_size(len(jobs), workers.count)
    portions = [jobs[first : first + size] for first in range(0, len(jobs), size)]
    return [(spec, *_own_candidates(candidates, portion), *more) for portion in portions]


def _own_candidates(
    candidates: NDArray[np.float32], jobs: Sequence[EpisodeJob]
) -> tuple[NDArray[np.float32], list[EpisodeJob]]:
    """The candidates of these jobs alone, and the jobs with their new rows."""
    rows = sorted({job.candidate for job in jobs})
    return candidates[rows], [replace(job, candidate=rows.index(job.candidate)) for job in jobs]


def portion_size(jobs: int, workers: int) -> int:
    """Episodes of a task where tasks are small: as many as fill a lockstep, or fewer, so that there are two for every
    worker. With 64 candidates of 16 episodes that is the fastest size for 1 to 1,000 workers."""
    # Two tasks a worker, so that one that is slower does not end last by a whole task.
    fair = min(max(jobs // (2 * workers), 1), NUM_ENVS)
    # A power of two, so that tasks fill lockstep batches of eight evenly.
    return 1 << (fair.bit_length() - 1)


def split_jobs(jobs: Sequence[EpisodeJob], workers: int) -> list[list[EpisodeJob]]:
    """Jobs in as many equal portions as there are workers, dealt in turn so that every portion has all candidates."""
    # Dealt in turn, because candidates of one generation differ in how long they play.
    return [list(jobs[number::workers]) for number in range(min(workers, len(jobs)))]


def evaluation_jobs(episodes: int) -> list[EpisodeJob]:
    """The test episodes: the same seeds for every agent and every training seed."""
    return [EpisodeJob(number, episode_seed("test", 0, "evaluate", number)) for number in range(episodes)]
