"""A Dreamer's replay: where it lies, what it takes, and what it begins with."""

from pathlib import Path
from typing import Any

import psutil

from stages import console
from stages.session import Session, stage_name
from wm.actions import ActionSpace
from wm.artifacts import durable
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset, read_root
from wm.episodes.replay import Ring, fill
from wm.episodes.writer import create
from wm.errors import MemoryProblem, RecipeMismatch, UsageProblem, WmError
from wm.models.dreamer.config import DreamerConfig
from wm.settings import DreamerSettings
from wm.units import format_size


def replay_path(session: Session) -> Path:
    """Where what is played is written behind the play."""
    name = stage_name(session, "dreamer")
    return Path("data") / f"{session.run_path.name}.{name.replace('/', '-')}.zarr"


def ring_bytes(settings: DreamerSettings, form: DreamerConfig) -> int:
    """Memory that the ring takes."""
    return settings.capacity * (form.size**2 * form.channels + 40)


def disk_bound(settings: DreamerSettings, form: DreamerConfig) -> int:
    """Bytes on disk that the replay cannot exceed: frames that do not compress at all."""
    parts = -(-settings.capacity // settings.part_rows) + 2
    return parts * settings.part_rows * (form.size**2 * form.channels + 64)


def require_memory(settings: DreamerSettings, form: DreamerConfig) -> None:
    """Raise MemoryProblem if the ring would not fit into what is free."""
    need, free = ring_bytes(settings, form), psutil.virtual_memory().available
    if need > free:
        raise MemoryProblem(
            f"--capacity is {settings.capacity}, which takes {format_size(need)} of memory, and "
            f"{format_size(free)} are "
            "free; give a smaller one."
        )


def recipe_of(session: Session, env: EnvConfig, space: ActionSpace) -> dict[str, Any]:
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
        "max_steps": 0,
        "seed": session.seed,
        "evicts": True,
    }


def open_replay(path: Path, recipe: dict[str, Any], resumed: bool) -> None:
    """A dataset for the replay; one that another training left is replaced. Raises UsageProblem if it is none."""
    if path.exists():
        try:
            found = read_root(path)
        except WmError:
            found = {}
        if not found.get("evicts"):
            raise UsageProblem(f"{path} is no replay; move it away, or give --name.")
        if resumed and found == recipe:
            return
        console.say(f"{path}: the replay of another training is replaced")
        durable.remove_folder(path)
    create(path, recipe)


def collected(session: Session, settings: DreamerSettings, form: DreamerConfig, space: ActionSpace) -> Ring:
    """The newest steps of --data, up to the capacity."""
    datasets = [Dataset.open(path) for path in session.data]
    for dataset in datasets:
        if dataset.frame_shape != (form.size, form.size, form.channels) or dataset.actions != space:
            raise RecipeMismatch(
                f"{dataset.path} has frames of {dataset.frame_shape} and {dataset.actions.width} actions; expected "
                f"{(form.size, form.size, form.channels)} and {space.width}. Collect it with --size {form.size}"
                f"{' --gray' if form.channels == 1 else ''}, or give --set gray=... and size=... to suit it."
            )
        if (observation := dataset.recipe["env"]["observation"]) != "rgb":
            raise RecipeMismatch(
                f"{dataset.path} has observation={observation}; a Dreamer takes rgb. Collect without --observation."
            )
    rows = sum(dataset.rows for dataset in datasets)
    if rows > settings.capacity:
        console.say(f"train-dreamer {session.env}: of {rows:,} collected steps the last {settings.capacity:,} are used")
    ring = Ring(1, min(rows, settings.capacity), (form.size, form.size, form.channels), space)
    for dataset in datasets:
        for part in dataset.parts:
            fill(ring, dataset, part, {})
    return ring
