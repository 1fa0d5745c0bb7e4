"""Collecting in this one process, through to disk, and how much of the time writing takes."""

import itertools
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType

from wm.envs.registry import EnvConfig
from wm.episodes.writer import Writer, create
from wm.rollouts.collection import Collection, describe, play_episode


class Collector:
    """Plays the episodes of `wm collect --policy random` one after the other and writes them; a call is an episode."""

    def __init__(self, env: str, render: str = "exact") -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="wm-bench-"))
        self._collection: Collection
        self._collection, recipe = describe(EnvConfig(env, render=render), "random", seed=0, max_steps=0)
        self._writer = Writer(create(self._folder / "d.zarr", recipe))
        self._numbers = itertools.count()
        self.playing = self.writing = 0.0

    def __call__(self) -> int:
        """Play and write the next episode. Returns its steps."""
        began = time.perf_counter()
        episode = play_episode(self._collection, next(self._numbers))
        played = time.perf_counter()
        self._writer.add(episode)
        self.playing += played - began
        self.writing += time.perf_counter() - played
        return episode.rows - 1

    @property
    def share(self) -> float:
        """What part of the time writing took."""
        began = time.perf_counter()
        self._writer.seal()
        self.writing += time.perf_counter() - began
        return self.writing / (self.playing + self.writing)

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        shutil.rmtree(self._folder)
