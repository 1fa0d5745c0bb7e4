"""Datasets for the benchmarks, collected once into a folder that goes away with the process."""

import atexit
import shutil
import tempfile
from pathlib import Path

from stages.collect import collect
from stages.session import Session
from wm.episodes.dataset import Dataset
from wm.settings import CollectSettings

_FOLDER = Path(tempfile.mkdtemp(prefix="wm-bench-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def dataset(env: str, episodes: int, policy: str = "random") -> Dataset:
    """The first episodes of an environment, at 64x64."""
    path = _FOLDER / f"{env}-{policy}-{episodes}.zarr"
    if not path.exists():
        collect(Session(env, data=(path,)), CollectSettings(episodes=episodes, policy=policy))
    return Dataset.open(path)
