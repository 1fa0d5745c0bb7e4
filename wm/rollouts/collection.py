"""What a worker needs to play any episode of a dataset, and what is asked before a dataset is opened for writing."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from wm.actions import ActionSpace
from wm.artifacts import durable
from wm.artifacts.disk import DiskBudget
from wm.envs.instances import Instances, compare_instances
from wm.envs.known_envs import EnvSpec
from wm.envs.labels import LIVES
from wm.envs.pixel_env import PixelEnv
from wm.envs.registration import one_line
from wm.envs.registry import EnvConfig, require_choice_of_frames, require_same_observation
from wm.episodes import mirror as mirrors
from wm.episodes.archive import Claim, find_dataset
from wm.episodes.schema import FramePacker, PackedEpisode, round_labels
from wm.episodes.size_estimate import SAMPLE_EPISODES, estimate_size, sample_suffices
from wm.episodes.writer import Writer
from wm.errors import DiskProblem, EnvironmentFault, UsageProblem, WmError
from wm.rollouts.loop import Agent, EpisodeJob, play_one
from wm.rollouts.players import NUM_ENVS, PolicySpec, make_agent
from wm.rollouts.policies import observation_free_policy, pick_policy
from wm.rollouts.process_workers import ProcessWorkers
from wm.rollouts.worker_process import heartbeat
from wm.rollouts.workers import open_workers
from wm.runtime import Runtime
from wm.seeding import collected_seed

HUMAN = "human"  # the policy of a dataset that a person has played


def _ignore(text: str) -> None:
    pass


@dataclass(frozen=True)
class Collection:
    """What a worker needs to play any episode of a dataset. `controller` is set where a trained controller plays.
    `lives` says whether their label is kept, in a game that has some."""

    env: EnvConfig
    policy: str
    seed: int
    max_steps: int
    controller: PolicySpec | None = None
    lives: bool = True

    def episode_seed(self, index: int) -> int:
        """Seed of the environment and the policy in episode `index`."""
        return collected_seed(self.seed, self.controller.fingerprint if self.controller else "", index)


def describe(
    env: EnvConfig,
    policy: str,
    seed: int,
    max_steps: int,
    controller: PolicySpec | None = None,
    log: Callable[[str], None] = _ignore,
    instances: Instances | None = None,
) -> tuple[Collection, dict[str, Any]]:
    """The collection and its dataset's recipe. `policy` may be `auto`. `instances` is what `require_survival` found.

    Builds the environment and takes one step. Raises WmError if that fails, and RecipeMismatch where the controller
    was trained on other observations. `log` is told what later stages must know of an environment that is not ours.
    """
    require_choice_of_frames(env)
    spec, space = env.spec(), env.actions  # builds and closes an instance; some environments allow one at a time
    built = env.make(labelled=True)
    if built.frame_source != "renderer":  # with a renderer of ours, there is no choice
        env = replace(env, frames=built.frame_source)
    if controller is not None:
        require_same_observation(controller.env, env)
        max_steps = max_steps or controller.env.max_steps
    if not spec.is_known and not built.env.own_limit:
        env = replace(env, max_steps=max_steps)  # without it, an episode may not end in later stages either
    policy = pick_policy(policy, space)
    _try_once(built, env.name)
    if not spec.is_known:
        env = with_instances(env, built, instances, log)
    recipe = env.as_recipe(space, built.label_names) | {
        "policy": _policy_recipe(policy, space, spec, controller),
        "max_steps": max_steps,
        "seed": seed,
    }
    built.close()
    return Collection(env, policy, seed, max_steps, controller), recipe


def labels_kept(names: Sequence[str], lives: bool) -> list[str]:
    """The labels of an environment that a dataset keeps. That of the lives is the last."""
    return [name for name in names if lives or name != LIVES]


def as_begun(path: Path, collection: Collection, recipe: dict[str, Any]) -> tuple[Collection, dict[str, Any]]:
    """The same for a dataset at `path` that was begun before lives were kept: it goes on without them."""
    without = recipe | {"labels": labels_kept(recipe["labels"], lives=False)}
    if without != recipe and find_dataset(path, without) is not None:
        return replace(collection, lives=False), without
    return collection, recipe


def with_instances(
    env: EnvConfig, built: PixelEnv, instances: Instances | None, log: Callable[[str], None]
) -> EnvConfig:
    """With the number of instances that a process may play in turn, if it is fewer than usual. `built` is one of them,
    of an environment that is not ours; `instances` is what `require_survival` returned. `log` is told what disturbs."""
    if env.envs_per_process:
        return replace(env, envs_per_process=env.envs_per_process % NUM_ENVS)
    instances = instances or compare_instances(built, env.make)
    if not instances.repeats:
        log(f"{env.name} does not repeat an episode with the same seed, so its results cannot be repeated either")
    if not instances.entangled:
        return env
    log(
        f"instances of {env.name} share state ({instances.entangled}); each process plays one at a time, which `wm "
        "collect --set envs_per_process=N` changes"
    )
    return replace(env, envs_per_process=1)


def compared(env: EnvConfig, runtime: Runtime) -> EnvConfig:
    """`with_instances`, for an environment in which others have played. One that cannot be played here stays as it is,
    which the log is told."""
    if env.spec().is_known:
        return env
    try:
        instances = require_survival(env, runtime)
        with closing(env.make(labelled=True)) as built:
            return with_instances(env, built, instances, runtime.log)
    except (EnvironmentFault, UsageProblem) as error:
        # Not here but in workers it may play; then whether instances disturb each other stays unknown.
        runtime.log(f"whether instances of {env.name} share state is not known, as it cannot be played here: {error}")
        return env


def _try_once(env: PixelEnv, name: str) -> None:
    """Reset the environment and take a step, so that what is wrong with it is known before anything is played."""
    try:
        what, expected = "reset()", "(observation, info)"
        env.reset(seed=0)
        # Seeded, so that a fault at the first step is the same at each call.
        env.action_space.seed(0)
        what, expected = "step()", "(observation, reward, terminated, truncated, info)"
        env.step(env.action_space.sample())
    except WmError:
        raise
    except (Exception, SystemExit) as error:  # environments outside this project may raise anything
        raise EnvironmentFault(
            f"{name} raised {one_line(error)} at its first {what}, which returns {expected}; fix the environment."
        ) from error


def _build_and_try(env: EnvConfig) -> Instances:
    """In a worker: build the environment, try it once, and compare instances. The parent knows its name."""
    try:
        env.spec()
    except UsageProblem:
        raise UsageProblem(
            f"{env.name} is registered in this process alone, which workers do not share; register it in a module, and "
            f"give module:{env.name}, or leave out workers."
        ) from None
    built = env.make(labelled=True)
    _try_once(built, env.name)
    instances = compare_instances(built, env.make, heartbeat)
    built.close()
    return instances


def require_survival(env: EnvConfig, runtime: Runtime) -> Instances | None:
    """Try an environment that is not ours in a process of its own first: what crashes or never returns would take this
    one with it, without a word. Raises EnvironmentFault for it, and whatever else `describe` would. Without workers
    all is played in this process, as was asked for, and None returned."""
    if not runtime.workers or env.spec().is_known:
        return None
    with ProcessWorkers(1, runtime.raise_if_stopped, runtime.clock, runtime.worker_timeout) as workers:
        kind, value = workers.run_once(_build_and_try, (env,))
    if kind == "refused":
        raise value
    if kind != "done":
        raise EnvironmentFault(f"{env.name} cannot take its first steps ({value}); fix the environment.")
    instances: Instances = value
    return instances


def _policy_recipe(policy: str, space: ActionSpace, spec: EnvSpec, controller: PolicySpec | None) -> str:
    """The policy with its parameters. Raises UsageProblem where it does not fit the action space."""
    if policy == HUMAN:
        return policy
    if controller is not None:
        random = f", {controller.random_share:g} random" if controller.random_share else ""
        return f"{policy} {controller.fingerprint[:16]}{random}"
    observation_free_policy(policy, space, spec.brownian_low)
    if policy == "brownian" and spec.brownian_low:
        return f"{policy} from {list(spec.brownian_low)}"
    if policy == "sticky" and space.discrete and len(among := spec.distinct_actions or ()) not in (0, space.count):
        return f"{policy} among {list(among)}"
    return policy


@lru_cache(maxsize=1)
def _open(collection: Collection) -> tuple[PixelEnv, Agent, ActionSpace]:
    """The environment and the agent, kept in this process from one episode to the next."""
    env = collection.env.make(labelled=True)
    space = ActionSpace.of(env.action_space)
    if collection.controller is not None:
        return env, make_agent(collection.controller, num_envs=1), space
    spec = collection.env.spec()
    return env, observation_free_policy(collection.policy, space, spec.brownian_low, spec.distinct_actions), space


def play_episode(collection: Collection, index: int) -> PackedEpisode:
    """Play episode `index`: a function of the collection's recipe, its seed and the index alone. Runs in a worker."""
    return record_episode(collection, index, *_open(collection))


def record_episode(
    collection: Collection, index: int, env: PixelEnv, agent: Agent, space: ActionSpace
) -> PackedEpisode:
    """Episode `index` as this agent plays it."""
    seed = collection.episode_seed(index)
    frames = FramePacker()
    played = play_one(agent, env, EpisodeJob(index, seed), space.column, frames.add, collection.max_steps, heartbeat)
    packed, shape = frames.finish()
    return PackedEpisode(
        index=index,
        seed=seed,
        packed=packed,
        shape=shape,
        actions=played.actions,
        rewards=played.rewards,
        labels=round_labels(played.labels[:, : len(labels_kept(env.label_names, collection.lives))]),
        terminated=played.terminated,
        truncated=played.truncated,
        env_steps=played.env_steps,
    )


@dataclass(frozen=True)
class Sample:
    """The first episodes of a collection, in order and without gaps; their mean number of rows, and rows per second of
    all workers together."""

    episodes: list[PackedEpisode]
    mean_rows: float
    rows_per_second: float


def play_sample(collection: Collection, episodes: int, runtime: Runtime) -> Sample:
    """Play as many episodes as it takes to estimate how large `episodes` of them are and how long they take."""
    played: list[PackedEpisode] = []
    began, rows = 0.0, 0
    with open_workers(runtime) as workers:
        for _, episode in workers.map(play_episode, [(collection, index) for index in range(SAMPLE_EPISODES)]):
            began = began or runtime.clock()  # timed from the first result on, when all workers have started
            rows += episode.rows if played else 0
            played.append(episode)
            if sample_suffices(played, episodes + 1) and rows:
                break
        # Fewer episodes than workers leave some idle, and the rate would be too low for a long collection.
        busy = min(episodes / workers.count, 1)  # workers without an episode add nothing to the speed
    played.sort(key=lambda episode: episode.index)
    # Only episodes without a gap before them may be stored, as parts hold consecutive ones.
    first_gap = next((k for k, episode in enumerate(played) if episode.index != k), len(played))
    mean_rows = sum(episode.rows for episode in played) / len(played)
    return Sample(played[: max(first_gap, 1)], mean_rows, rows / (runtime.clock() - began) * busy)


def open_writer(claim: Claim, sample: Sequence[PackedEpisode], episodes: int, budget: DiskBudget, env: str) -> Writer:
    """Open the claimed dataset for writing. Raises DiskProblem if the budget is too small for `episodes` more; of those
    in an object store, only one part at a time must fit here."""
    if (mirror := mirrors.of(claim.path)) is not None:
        return claim.open_writer(mirror.make_room)
    need = estimate_size(claim.recipe, sample, episodes)
    used = durable.folder_size(claim.path) if claim.dataset else 0
    budget.require(need.bytes, used, f"collecting {episodes} episodes of {env}", need.files)

    written: int | None = None  # what the dataset takes: measured before its first new part, then added up

    def allow(size: int) -> None:
        nonlocal written
        if written is None:
            written = durable.folder_size(claim.path)
        available, written = budget.available(written), written + size
        if size > available:
            raise DiskProblem(
                f"the disk budget at {claim.path} is used up after {writer.dataset.episodes} episodes, which are kept; "
                "free some space or raise --disk-budget, and run the same command again."
            )

    writer = claim.open_writer(allow)
    return writer
