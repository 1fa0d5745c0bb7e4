"""A Dreamer's replay: its size in memory and on disk, its dataset, and a replay of collected episodes."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from wm.actions import ActionSpace
from wm.artifacts import durable, links
from wm.artifacts.runs import ARCHIVE, free_name
from wm.envs.registry import EnvConfig
from wm.episodes.archive import read_provenance, record
from wm.episodes.dataset import Dataset, fingerprint_of, read_root
from wm.episodes.mixture import require_env
from wm.episodes.replay import STEP_BYTES, ReplayBuffer, load_part
from wm.episodes.writer import create
from wm.errors import MemoryProblem, RecipeMismatch, UsageProblem, WmError
from wm.models.dreamer.config import DreamerConfig
from wm.settings import DreamerSettings
from wm.units import format_size

TRAINING = "dreamer"  # in a replay's provenance: the fingerprint of its training
ROW_BYTES = 64  # at most, of a step on disk without its frame


def replay_buffer(num_envs: int, capacity: int, config: DreamerConfig, space: ActionSpace) -> ReplayBuffer:
    """An empty replay for the frames of this Dreamer."""
    return ReplayBuffer(num_envs, capacity, (config.size, config.size, config.channels), space)


def replay_bytes(capacity: int, config: DreamerConfig) -> int:
    """Memory of a replay."""
    return capacity * (config.size**2 * config.channels + STEP_BYTES)


def disk_bound(capacity: int, part_rows: int, config: DreamerConfig) -> int:
    """The largest size of a replay on disk: frames that do not compress, one part beyond the capacity, and the one that
    is being written."""
    parts = -(-capacity // part_rows) + 2
    return parts * part_rows * (config.size**2 * config.channels + ROW_BYTES)


def require_memory(capacity: int, config: DreamerConfig) -> None:
    """Raise MemoryProblem if the replay does not fit into free memory."""
    need, free = replay_bytes(capacity, config), psutil.virtual_memory().available
    if need > free:
        raise MemoryProblem(
            f"--capacity is {capacity}, which takes {format_size(need)} of memory, and {format_size(free)} are free; "
            "give a smaller one."
        )


def replay_recipe(env: EnvConfig, space: ActionSpace, seed: int) -> dict[str, Any]:
    """The recipe of the replay as a dataset."""
    spec = env.spec()
    return {
        "env": env.as_json(),
        "env_id": spec.env_id,
        "crop": None,
        # ALE's v5 environments skip four frames themselves.
        "frame_skip": 4 if spec.is_atari else 1,
        "action_space": space.as_json(),
        "labels": [],
        "policy": "dreamer",
        "max_steps": env.max_steps,
        "seed": seed,
        "evicts": True,
    }


def open_replay(path: Path, recipe: dict[str, Any], training: str, resumed: bool, log: Callable[[str], None]) -> None:
    """The dataset of a training's replay, new unless the training is resumed. `training` is its fingerprint; the replay
    of another one moves to the archive. Raises UsageProblem if `path` is not a replay."""
    swap_in(path, training, resumed, log)
    if path.exists() and not (resumed and read_root(path) == recipe):
        log(f"{path}: the replay is begun anew")
        durable.remove(path)
    if not path.exists():
        create(path, recipe)
    if not _training_of(path):
        record(path, {"episodes": 0, TRAINING: training})


def swap_in(path: Path, training: str, resumed: bool, log: Callable[[str], None]) -> None:
    """Bring the replay of a training to `path`, if it has one elsewhere; that of another one moves to the archive. Of a
    replay that does not tell, which earlier versions wrote, the training is the one that is resumed."""
    if path.exists():
        owner = _training_of(path)
        if owner == training or (resumed and not owner):
            return
        target = free_name(_archived(path, owner or fingerprint_of(read_root(path))))
        log(f"{path}: the replay of another training moves to {target}")
        durable.make_folder(target.parent)
        os.rename(links.refuse(path), target)
    if (archived := _archived(path, training)).exists():
        log(f"{path}: restored from {archived}")
        os.rename(archived, path)


def _archived(path: Path, fingerprint: str) -> Path:
    return links.refuse(links.refuse(path.parent / ARCHIVE) / f"{path.stem}-{fingerprint[:8]}.zarr")


def _training_of(path: Path) -> str:
    """The fingerprint of the Dreamer that a replay is of; empty if it does not tell."""
    try:
        recipe = read_root(path)
    except WmError:
        # A replay that cannot be read is of no training, and moves to the archive.
        recipe = {}
    if not recipe.get("evicts"):
        raise UsageProblem(f"{path} is not a replay; move it away, or give --name.")
    return next((str(line[TRAINING]) for line in read_provenance(path) if TRAINING in line), "")


def require_collected(datasets: Sequence[Dataset], env: EnvConfig, config: DreamerConfig, space: ActionSpace) -> None:
    """Raise RecipeMismatch if the environment, frames or actions of collected datasets are not this Dreamer's."""
    for dataset in datasets:
        require_env(dataset, env.name)
        _require_same(dataset, env, config, space)


def load_collected(
    datasets: Sequence[Dataset], capacity: int, config: DreamerConfig, space: ActionSpace, log: Callable[[str], None]
) -> ReplayBuffer:
    """A replay with the newest `capacity` steps of collected datasets."""
    rows = sum(dataset.rows for dataset in datasets)
    if rows > capacity:
        log(f"the newest {capacity:,} of {rows:,} collected steps are used")
    buffer = replay_buffer(1, min(rows, capacity), config, space)
    for dataset in datasets:
        for part in dataset.parts:
            load_part(buffer, dataset, part, {})
    return buffer


def _require_same(dataset: Dataset, env: EnvConfig, config: DreamerConfig, space: ActionSpace) -> None:
    expected = (config.size, config.size, config.channels)
    if dataset.frame_shape != expected or dataset.actions != space:
        raise RecipeMismatch(
            f"{dataset.path} has frames of {dataset.frame_shape} and {dataset.actions}; expected {expected} and "
            f"{space}. Collect it with --size {config.size}{' --gray' if config.channels == 1 else ''}, or give --set "
            "gray=... and size=... that match it."
        )
    if difference := env.difference(EnvConfig.of_recipe(dataset.recipe), ignored=("action_space",)):
        name, ours, theirs = difference
        ways_out = f"give --set {name}={theirs}, or " if hasattr(DreamerSettings, name) else ""
        ways_out += f"collect with `--set {name}={ours}`"
        raise RecipeMismatch(f"{dataset.path} has {name} {theirs} but this Dreamer takes {ours}; {ways_out}.")
