"""An environment and a policy -> episodes."""

import os
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from wm.envs.registry import EnvConfig
from wm.episodes.archive import Claim, claim, collecting_seconds, find_dataset
from wm.episodes.dataset import Dataset
from wm.errors import WmError
from wm.pipeline.session import Session
from wm.pipeline.stage import CREATED, RESUMED, UP_TO_DATE, Result
from wm.rollouts.collecting import collect_episodes
from wm.rollouts.collection import Collection, as_begun, describe, require_survival
from wm.rollouts.players import trained_policy
from wm.settings import CollectSettings
from wm.units import format_size

RECORD_EVERY = 60.0  # seconds of a session that a kill leaves uncounted
SMALL = 0.05  # a return below it is shown as 0.0; M and PPO take rewards of less than a fiftieth of it as next to none
ROUNDING = 1e-12  # what is left of rewards of either sign that cancel
FRAME_SOURCES = {"observation": "the environment's observations", "render": "what its render() returns"}


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
        mask=settings.mask,
    )


def describe_collection(session: Session, settings: CollectSettings) -> tuple[Collection, dict[str, Any]]:
    """The collection and its dataset's recipe."""
    settings.require_own()
    controller = None
    if settings.by_controller:
        controller = trained_policy(session.workspace, settings.random_share, latest=settings.policy == "latest")
    config, runtime = env_config(session.env, settings), session.runtime
    instances = None if session.data_path.exists() else require_survival(config, runtime)
    described = describe(config, settings.policy, session.seed, settings.max_steps, controller, runtime.log, instances)
    return as_begun(session.data_path, *described)


def collect(session: Session, settings: CollectSettings) -> Result:
    """Play the missing episodes and commit them part by part. Raises DiskProblem before anything is written, or when
    the budget is used up, with everything committed so far usable."""
    path, runtime = session.data_path, session.runtime
    began = runtime.clock()
    collection, recipe = describe_collection(session, settings)
    if path.exists() and not os.access(path.parent, os.W_OK):  # no lock can be taken there, and none is needed
        dataset = find_dataset(path, recipe)
        if dataset and not dataset.absent(settings.episodes):
            return _result(session, dataset, settings.episodes, UP_TO_DATE)
    if source := FRAME_SOURCES.get(recipe.get("frames", "")):
        runtime.log(f"collect {session.env}: frames are {source}")
    if limit := collection.env.max_steps:
        runtime.log(f"collect {session.env}: it has no limit of its own; later stages truncate after {limit} steps too")
    with claim(path, recipe, session.keep_current, runtime.log) as claimed:
        if claimed.dataset and not claimed.missing(settings.episodes):
            return _result(session, claimed.dataset, settings.episodes, UP_TO_DATE)
        record = SessionRecord(session, claimed, began)
        claimed = replace(claimed, committed=record.committed)
        try:
            dataset = collect_episodes(collection, claimed, settings.episodes, session.budget(path), runtime)
        except BaseException:
            # Also for Ctrl-C: what was committed is in the dataset, and its time must be counted.
            record.interrupted()
            raise
        record.write(settings.episodes)
    status = RESUMED if claimed.dataset and claimed.dataset.episodes else CREATED
    return _result(session, dataset, settings.episodes, status)


class SessionRecord:
    """What a session took, in the dataset's provenance: every minute, since it may be killed, and at its end."""

    def __init__(self, session: Session, claimed: Claim, began: float) -> None:
        self._session, self._claimed, self._began = session, claimed, began
        self._written = began
        self._continues: dict[str, bool] = {}

    def write(self, episodes: int) -> None:
        """The dataset has this many episodes."""
        self._claimed.record({"episodes": episodes, **self._session.provenance(self._began), **self._continues})
        self._written, self._continues = self._session.runtime.clock(), {"continues": True}

    def committed(self, episodes: int) -> None:
        """A part with the last of these episodes was committed."""
        if self._session.runtime.clock() - self._written >= RECORD_EVERY:
            self.write(episodes)

    def interrupted(self) -> None:
        """The session was stopped or failed: it counts if it has committed episodes. What ended it is told, and not
        that the same disk takes no record either."""
        before = self._claimed.dataset.collected if self._claimed.dataset else 0
        # The disk that was full may take no record, either.
        with suppress(OSError, WmError):
            dataset = find_dataset(self._claimed.path, self._claimed.recipe)
            if dataset is not None and dataset.collected > before:
                self.write(dataset.collected)


def _result(session: Session, dataset: Dataset, episodes: int, status: str) -> Result:
    """The first `episodes` of the dataset, and the size of all its parts."""
    dataset.require_complete()
    subset = dataset.first(episodes)
    size, largest = dataset.bytes, float(np.abs(subset.table["return"]).max())
    if ROUNDING < largest < SMALL:
        session.runtime.log(
            f"collect {session.env}: the returns are at most {largest:.2g} in size, of which other messages show "
            "0.0 and M and PPO learn little; multiply the rewards in the environment"
        )
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
    return Result("collect", status, dataset.path, session.run_path, subset.fingerprint, metrics, summary, seconds)
