"""`wm export`: episodes in the formats of others: npz, Minari, mp4."""

import importlib.util
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stages import console
from stages.session import install_command
from stages.view import places_of
from wm.artifacts import durable
from wm.artifacts.disk import DiskBudget
from wm.episodes.dataset import Dataset
from wm.episodes.schema import Episode
from wm.errors import MissingPackage, UsageProblem
from wm.report.video import write_film

FPS = 30
_ENLARGED = 4  # a 64-pixel film is too small to watch
_NEEDS = {"npz": (), "minari": ("minari", "h5py"), "mp4": ("imageio", "imageio_ffmpeg")}


def export(path: Path, kind: str, asked: str | None, out: Path | None) -> Path:
    """Write the episodes to a new folder, whole or not at all; by default `data/exports/<name>-<kind>`."""
    absent = [package for package in _NEEDS[kind] if importlib.util.find_spec(package) is None]
    if absent:
        names = ", ".join(package.replace("_", "-") for package in absent)
        raise MissingPackage(f"--to {kind} needs {names}; run `{install_command(kind)}`.")
    dataset = Dataset.open(path)
    places = places_of(dataset, asked or "all")
    target = out or path.parent / "exports" / f"{path.stem}-{kind}"
    if target.exists():
        raise UsageProblem(f"{target} exists; remove it, or give another place with --out.")
    wanted = set(dataset.table["index"][places].tolist())
    raw = int(dataset.rows * np.prod(dataset.frame_shape) * len(places) / dataset.episodes)
    DiskBudget(target).require(raw if kind == "minari" else raw // 20, 0, f"exporting {len(places)} episodes")
    durable.make_folder(target.parent)
    durable.sweep(target.parent, target.name)
    staged = durable.aside(target)
    staged.mkdir()
    try:
        with console.progress(f"export {path.name}", len(places), "episodes") as progress:
            done = 0
            for number, batch in enumerate(_batches(dataset, wanted)):
                _WRITE[kind](staged, dataset, batch, number)
                done += len(batch)
                progress.update(done)
        durable.commit_folder(staged, target)
    except BaseException:
        durable.remove_folder(staged)
        raise
    return target


def _batches(dataset: Dataset, wanted: set[int]) -> Iterator[list[Episode]]:
    """The wanted episodes, a part at a time."""
    for part in dataset.parts:
        found = [] if wanted.isdisjoint(range(part.first, part.last)) else dataset.episodes_of(part)
        if chosen := [episode for episode in found if episode.index in wanted]:
            yield chosen


def _write_npz(folder: Path, dataset: Dataset, episodes: list[Episode], _: int) -> None:
    """A compressed npz per episode, arrays of T + 1 rows as in the dataset."""
    for episode in episodes:
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            frames=episode.frames,
            actions=episode.actions,
            rewards=episode.rewards,
            labels=episode.labels,
            label_names=np.array(dataset.label_names),
            terminated=episode.terminated,
            truncated=episode.truncated,
            seed=episode.seed,
        )
        durable.write_bytes(folder / f"episode-{episode.index:06d}.npz", buffer.getvalue())


def _write_minari(folder: Path, dataset: Dataset, episodes: list[Episode], number: int) -> None:
    """A Minari dataset `wm/<name>-v0`; the folder is what MINARI_DATASETS_PATH has to say."""
    import gymnasium as gym
    import minari
    from minari.data_collector import EpisodeBuffer

    space = dataset.actions
    actions: Any = gym.spaces.Discrete(space.count)
    if not space.discrete:
        actions = gym.spaces.Box(np.array(space.low, np.float32), np.array(space.high, np.float32))
    buffers = [
        EpisodeBuffer(
            id=None if number else place,
            seed=episode.seed,
            observations=list(episode.frames),
            actions=list(episode.actions[:-1]),
            rewards=episode.rewards[:-1].tolist(),
            terminations=[*[False] * (episode.rows - 2), episode.terminated],
            truncations=[*[False] * (episode.rows - 2), episode.truncated],
        )
        for place, episode in enumerate(episodes)
    ]
    name = "".join(c if c.isalnum() else "-" for c in dataset.recipe["env"]["name"]).strip("-").lower()
    with _variable("MINARI_DATASETS_PATH", str(folder.resolve())), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for an e-mail address and a link to the code
        if number == 0:
            minari.create_dataset_from_buffers(
                f"wm/{name}-v0",
                buffers,
                env=None,
                action_space=actions,
                observation_space=gym.spaces.Box(0, 255, dataset.frame_shape, np.uint8),
                algorithm_name=str(dataset.recipe["policy"]),
                author="wm",
                description=f"{dataset.recipe['env']['name']}: {dataset.recipe['policy']} policy, by wm collect",
                jpeg_encoding=False,
            )
        else:
            minari.load_dataset(f"wm/{name}-v0").storage.update_episodes(buffers)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _write_mp4(folder: Path, dataset: Dataset, episodes: list[Episode], _: int) -> None:
    """A film per episode, four times enlarged."""
    for episode in episodes:
        large = (frame.repeat(_ENLARGED, axis=0).repeat(_ENLARGED, axis=1) for frame in episode.frames)
        colored = (np.repeat(frame, 3, axis=-1) if frame.shape[-1] == 1 else frame for frame in large)
        write_film(folder / f"episode-{episode.index:06d}.mp4", colored, FPS)


_WRITE = {"npz": _write_npz, "minari": _write_minari, "mp4": _write_mp4}
