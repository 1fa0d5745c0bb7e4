"""`wm collect`: an environment and a policy -> episodes."""

import time
from typing import Any

from stages.session import Session
from stages.stage import CREATED, RESUMED, UP_TO_DATE, Plan, Result
from wm.envs.registry import EnvConfig
from wm.episodes.archive import claim, collecting_seconds, find_dataset
from wm.episodes.dataset import Dataset
from wm.episodes.size_estimate import estimate_size
from wm.rollouts.collection import Collection, collect_episodes, describe, play_sample
from wm.rollouts.players import trained_policy
from wm.settings import CollectSettings
from wm.units import format_size

FRAME_SOURCES = {"observation": "the environment's observations", "render": "what its render() returns"}
PROCESS_MEMORY = 120_000_000  # bytes of a process that plays, or writes


def env_config(env: str, settings: CollectSettings) -> EnvConfig:
    """The environment with the observations of the settings."""
    return EnvConfig(
        env,
        settings.size,
        settings.gray,
        settings.action_space,
        settings.render,
        settings.observation,
        settings.action_repeat,
        settings.frames,
        envs_per_process=settings.envs_per_process,
    )


def _describe(session: Session, settings: CollectSettings) -> tuple[Collection, dict[str, Any]]:
    """The collection and its dataset's recipe."""
    controller = None
    if settings.by_controller:
        controller = trained_policy(session.workspace, settings.random_share, latest=settings.policy == "latest")
    config = env_config(session.env, settings)
    return describe(config, settings.policy, session.seed, settings.max_steps, controller, session.runtime.log)


def plan(session: Session, settings: CollectSettings) -> Plan:
    """What `collect` would do. Plays a few episodes to estimate their size and duration."""
    collection, recipe = _describe(session, settings)
    path = session.data_path
    dataset = find_dataset(path, recipe)
    missing = len(dataset.absent(settings.episodes)) if dataset else settings.episodes
    if dataset and not missing:
        summary = f"{UP_TO_DATE} with {settings.episodes} episodes"
        return Plan("collect", path, summary, 0, 0, (0, 0), dataset.first(settings.episodes).rows)
    runtime = session.runtime
    sample = play_sample(collection, missing, runtime)
    rows = sample.mean_rows * missing
    seconds = rows / sample.rows_per_second
    return Plan(
        "collect",
        path,
        f"{missing} episodes to play, {dataset.episodes if dataset else 0} collected",
        estimate_size(recipe, sample.episodes, missing).bytes,
        PROCESS_MEMORY * (1 + max(runtime.workers, 1)),
        (seconds, seconds),
        round(rows) + (dataset.rows if dataset else 0),
    )


def collect(session: Session, settings: CollectSettings) -> Result:
    """Play the missing episodes and commit them part by part. Raises DiskProblem before anything is written, or when
    the budget is used up, with everything committed so far usable."""
    began = time.monotonic()
    path, runtime = session.data_path, session.runtime
    collection, recipe = _describe(session, settings)
    if source := FRAME_SOURCES.get(recipe.get("frames", "")):
        runtime.log(f"collect {session.env}: frames are {source}")
    if limit := collection.env.max_steps:
        runtime.log(f"collect {session.env}: it has no limit of its own; later stages truncate after {limit} steps too")
    with claim(path, recipe, session.keep_current, runtime.log) as claimed:
        if claimed.dataset and not claimed.missing(settings.episodes):
            return _result(claimed.dataset, settings.episodes, UP_TO_DATE)
        dataset = collect_episodes(collection, claimed, settings.episodes, session.budget(path), runtime)
        claimed.record({"episodes": settings.episodes, **session.provenance(began)})
    status = RESUMED if claimed.dataset and claimed.dataset.episodes else CREATED
    return _result(dataset, settings.episodes, status)


def _result(dataset: Dataset, episodes: int, status: str) -> Result:
    """The first `episodes` of the dataset, and the size of all its parts."""
    dataset.require_complete()
    subset = dataset.first(episodes)
    size = dataset.bytes
    metrics = {
        "episodes": subset.episodes,
        "rows": subset.rows,
        "mean_return": float(subset.table["return"].mean()),
        "bytes": size,
        "bytes_per_frame": round(size / sum(part.rows for part in dataset.parts), 1),
    }
    summary = (
        f"{subset.episodes} episodes, {subset.rows:,} frames, mean return {metrics['mean_return']:.1f}, "
        f"{format_size(size)} ({metrics['bytes_per_frame']} bytes a frame)"
    )
    seconds = collecting_seconds(dataset.path)
    return Result("collect", status, dataset.path, subset.fingerprint, metrics, summary, seconds)
