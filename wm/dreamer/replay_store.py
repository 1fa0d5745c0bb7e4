"""A Dreamer's replay: its size in memory and on disk, its dataset, and a replay of collected episodes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from wm.actions import ActionSpace
from wm.artifacts import durable
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset, read_root
from wm.episodes.mixture import require_env
from wm.episodes.replay import STEP_BYTES, ReplayBuffer, load_part
from wm.episodes.writer import create
from wm.errors import MemoryProblem, RecipeMismatch, UsageProblem, WmError
from wm.models.dreamer.config import DreamerConfig
from wm.units import format_size

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
        "frame_skip": 4 if spec.is_atari else 1,
        "action_space": space.as_json(),
        "labels": [],
        "policy": "dreamer",
        "max_steps": env.max_steps,
        "seed": seed,
        "evicts": True,
    }


def open_replay(path: Path, recipe: dict[str, Any], resumed: bool, log: Callable[[str], None]) -> None:
    """Create the dataset of a replay; another training's replay is replaced. Raises UsageProblem if `path` is not a
    replay."""
    if path.exists():
        try:
            existing = read_root(path)
        except WmError:
            existing = {}
        if not existing.get("evicts"):
            raise UsageProblem(f"{path} is not a replay; move it away, or give --name.")
        if resumed and existing == recipe:
            return
        log(f"{path}: the replay of another training is replaced")
        durable.remove(path)
    create(path, recipe)


def open_collected(paths: Sequence[Path], env: EnvConfig, config: DreamerConfig, space: ActionSpace) -> list[Dataset]:
    """Collected datasets. Raises RecipeMismatch if their environment, frames or actions are not this Dreamer's."""
    datasets = [Dataset.open(path, env=env.name) for path in paths]
    for dataset in datasets:
        require_env(dataset, env.name)
        _require_same(dataset, env, config, space)
    return datasets


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
        raise RecipeMismatch(
            f"{dataset.path} has {name} {theirs} but a Dreamer takes {ours}; collect with `--set {name}={ours}`."
        )
