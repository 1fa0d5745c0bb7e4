"""`wm collect`: an environment and a policy -> episodes."""

import itertools
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from stages import console
from stages.session import Session
from stages.stage import Plan, Result
from wm.actions import ActionSpace
from wm.artifacts import durable, locks
from wm.envs.pixel_env import PixelEnv
from wm.envs.registry import EnvConfig, EnvSpec
from wm.episodes.archive import PROVENANCE, archive, open_same, read_provenance, restore_archived_dataset
from wm.episodes.dataset import Dataset
from wm.episodes.schema import Episode, PackedEpisode, rounded
from wm.episodes.size_estimate import SAMPLE_EPISODES, expected, is_enough
from wm.episodes.writer import Writer, create
from wm.errors import DiskProblem, RecipeMismatch, WmError, WorkerFailed
from wm.rollouts.loop import Agent, EpisodeJob, record
from wm.rollouts.players import PolicySpec, make_agent, trained_policy
from wm.rollouts.policies import observation_free_policy, pick_policy
from wm.rollouts.workers import Workers, heartbeat
from wm.seeding import episode_seed
from wm.settings import CollectSettings

PROCESS = 120_000_000  # bytes of memory of a process that plays, or writes


@dataclass(frozen=True)
class Collection:
    """What a worker needs to play any episode of a dataset."""

    env: EnvConfig
    policy: str
    seed: int
    max_steps: int
    player: PolicySpec | None = None


@lru_cache(maxsize=1)
def _set_up(collection: Collection) -> tuple[PixelEnv, Agent, ActionSpace]:
    env = collection.env.make(labelled=True)
    space = ActionSpace.of(env.action_space)
    if collection.player is not None:
        return env, make_agent(collection.player, num_envs=1), space
    return env, observation_free_policy(collection.policy, space, collection.env.spec().walk_low), space


def play_episode(collection: Collection, index: int) -> PackedEpisode:
    """Play episode `index`: a function of the collection's recipe, its seed and the index alone. Runs in a worker."""
    env, agent, space = _set_up(collection)
    seed = episode_seed("train", collection.seed, "collect", index)
    played = record(agent, env, EpisodeJob(index, seed), space.column, collection.max_steps, heartbeat)
    return Episode(
        index=index,
        seed=seed,
        frames=played.frames,
        actions=played.actions,
        rewards=played.rewards,
        labels=rounded(played.labels),
        terminated=played.terminated,
        truncated=played.truncated,
    ).pack()


def env_config(env: str, settings: CollectSettings) -> EnvConfig:
    """The environment as the episodes show it."""
    return EnvConfig(
        env,
        settings.size,
        settings.gray,
        settings.action_space,
        settings.render,
        settings.observation,
        settings.action_repeat,
    )


def describe(session: Session, settings: CollectSettings) -> tuple[Collection, dict[str, Any]]:
    """The collection and the dataset's recipe. Builds the environment once, which checks that it can be built."""
    recipe = env_config(session.env, settings)
    spec = recipe.spec()
    env = recipe.make(labelled=True)
    space = ActionSpace.of(env.action_space)
    policy = pick_policy(settings.policy, space)
    player = trained_policy(session) if policy == "controller" else None
    if player is not None:
        require_same_view(player.env, recipe)
    told = policy if player is None else f"controller {player.fingerprint[:16]}"
    if policy == "brownian":
        observation_free_policy(policy, space, spec.walk_low)
        told += f" from {list(spec.walk_low)}" if spec.walk_low else ""
    try:
        env.reset(seed=0)
    except Exception as error:  # whatever an environment of somebody's raises
        raise WmError(f"{session.env} broke when it was reset ({error!r}); mend the environment.") from error
    described = {
        "env": recipe.as_json(),
        "env_id": spec.env_id,
        "crop": None,
        "frame_skip": 4 if spec.env_id.startswith("ALE/") else 1,
        "action_space": space.as_json(),
        "labels": list(env.label_names),
        "policy": told,
        "max_steps": settings.max_steps,
        "seed": session.seed,
        "packages": _packages(spec),
    }
    env.close()
    return Collection(recipe, policy, session.seed, settings.max_steps, player), described


def require_same_view(seen: EnvConfig, asked: EnvConfig) -> None:
    """Raise RecipeMismatch if the controller would not see what its V was trained on. Who draws does not matter."""
    before, now = asdict(replace(seen, render=asked.render)), asdict(asked)
    differing = [name for name in now if before[name] != now[name]]
    if differing:
        name = differing[0]
        value = str(before[name]).lower()
        raise RecipeMismatch(
            f"{name} is {str(now[name]).lower()} but the controller's V was trained with {value}; collect with "
            f"`--set {name}={value}`, or train V, M and C on such episodes first."
        )


def _packages(spec: EnvSpec) -> dict[str, str]:
    from importlib.metadata import version

    names = ["gymnasium", "ale-py"] if spec.env_id.startswith("ALE/") else ["gymnasium"]
    return {name: version(name) for name in names}


def _missing(there: Dataset | None, episodes: int) -> list[int]:
    """Indices of the episodes to play."""
    return there.absent(episodes) if there else list(range(episodes))


def plan(session: Session, settings: CollectSettings) -> Plan:
    """What `collect` would do, after playing the first episodes to see how large they are and how long they take."""
    collection, recipe = describe(session, settings)
    path = session.data_path
    there = open_same(path, recipe)
    missing = _missing(there, settings.episodes)
    if not missing:
        rows = Dataset.open(path, settings.episodes).rows
        return Plan("collect", path, f"up to date with {settings.episodes} episodes", 0, 0, (0, 0), rows)
    sample: list[PackedEpisode] = []
    began, rows = 0.0, 0
    with session.open_workers() as workers:
        for _, episode in workers.map(play_episode, [(collection, index) for index in range(SAMPLE_EPISODES)]):
            began = began or time.monotonic()  # the first is finished: all workers have started
            rows += episode.rows if sample else 0
            sample.append(episode)
            if is_enough(sample, len(missing) + 1) and rows:
                break
        share = min(len(missing) / workers.count, 1)
    sample.sort(key=lambda episode: episode.index)
    whole = sample[: next((k for k, episode in enumerate(sample) if episode.index != k), len(sample))] or sample[:1]
    rate = rows / (time.monotonic() - began) * share
    steps = sum(episode.rows for episode in sample) / len(sample) * len(missing)
    return Plan(
        "collect",
        path,
        f"{len(missing)} episodes to play, {there.episodes if there else 0} there",
        expected(path, recipe, whole, len(missing)).bytes,
        PROCESS * (1 + workers.count),
        (steps / rate, steps / rate),
        round(steps) + (there.rows if there else 0),
    )


def collect(session: Session, settings: CollectSettings) -> Result:
    """Play what is missing and commit it part by part. Raises DiskProblem before anything is written, or when the
    budget is reached, with everything committed so far usable."""
    began = time.monotonic()
    path = session.data_path
    collection, recipe = describe(session, settings)
    open_same(path, recipe)  # refuses a folder that is no dataset before a lock is put beside it
    with locks.exclusive(path):
        restore_archived_dataset(path, recipe, session)
        there = open_same(path, recipe)
        missing = _missing(there, settings.episodes)
        if not missing:
            return _result(path, settings.episodes, "up to date")
        with session.open_workers() as workers:
            _play(session, settings, _Going(collection, recipe, there, missing), workers)
        durable.append_line(path / PROVENANCE, json.dumps({"episodes": settings.episodes, **session.provenance(began)}))
    return _result(path, settings.episodes, "resumed" if there is not None and there.episodes else "created")


@dataclass(frozen=True)
class _Going:
    """One go of collecting: what is there, and which episodes are to be played."""

    collection: Collection
    recipe: dict[str, Any]
    there: Dataset | None
    missing: list[int]

    def open_writer(self, session: Session, sample: Sequence[PackedEpisode]) -> Writer:
        """Begin to write, now that the sample tells how much it will be. Raises DiskProblem if that is too much."""
        path = session.data_path
        budget, what = session.budget(path), f"collecting {len(self.missing)} episodes of {session.env}"
        need = expected(path, self.recipe, sample, len(self.missing))
        budget.require(need.bytes, durable.folder_size(path) if self.there else 0, what, need.files)
        if self.there is None:
            archive(path, self.recipe)
            create(path, self.recipe)

        def allow(size: int) -> None:
            if size > budget.available(durable.folder_size(path)):
                raise DiskProblem(
                    f"the disk budget at {path} is used up after {writer.committed} episodes, which are kept; "
                    "free some space or raise --disk-budget, and run the same command again."
                )

        writer = Writer(path, self.recipe, allow)
        return writer


def _play(session: Session, settings: CollectSettings, going: _Going, workers: Workers) -> None:
    """Episodes come in any order and are written in theirs. The first ones wait until they tell how large the dataset
    will be; those that finish early wait, compressed, for their turn."""
    missing, ready = going.missing, dict[int, PackedEpisode]()
    writer: Writer | None = None
    rows, done = 0, settings.episodes - len(missing)
    tasks = [(going.collection, index) for index in missing]
    with ExitStack() as stack:
        progress = stack.enter_context(console.progress(f"collect {session.env}", settings.episodes, "episodes", done))

        def write(enough: Callable[[list[PackedEpisode]], bool]) -> None:
            nonlocal writer
            first = [ready[index] for index in itertools.takewhile(ready.__contains__, missing[:SAMPLE_EPISODES])]
            if writer is None and enough(first):
                writer = stack.enter_context(going.open_writer(session, first))
            while writer is not None and writer.next in ready:
                writer.add(ready.pop(writer.next))

        began = time.monotonic()
        try:
            for number, episode in workers.map(play_episode, tasks):
                ready[missing[number]] = episode
                rows, done = rows + episode.rows, done + 1
                write(lambda first: is_enough(first, len(missing)))
                progress.update(done, frames=f"{rows / (time.monotonic() - began):,.0f}/s")
        except WorkerFailed as failed:
            write(bool)  # what was finished before the one that fails is kept, be it ever so little
            index = missing[failed.task]
            seed = episode_seed("train", session.seed, "collect", index)
            raise WorkerFailed(index, failed.why, f"episode {index} of {session.env} (seed {seed})") from None


def _seconds(path: Path) -> float:
    """What all goes of collecting took that came to an end."""
    return float(sum(line.get("wall_seconds", 0.0) for line in read_provenance(path)))


def _result(path: Path, episodes: int, status: str) -> Result:
    dataset = Dataset.open(path)
    used = Dataset.open(path, min(episodes, dataset.held))
    size = sum(durable.folder_size(part.folder) for part in dataset.parts)
    rows = sum(part.rows for part in dataset.parts)
    metrics = {
        "episodes": used.episodes,
        "rows": used.rows,
        "mean_return": float(used.table["return"].mean()),
        "bytes": size,
        "bytes_per_frame": round(size / rows, 1),
    }
    summary = (
        f"{used.episodes} episodes, {used.rows:,} frames, mean return {metrics['mean_return']:.1f}, "
        f"{size / 1e6:.2f} MB ({metrics['bytes_per_frame']} bytes a frame)"
    )
    return Result("collect", status, path, used.fingerprint, metrics, summary, _seconds(path))
