"""Episodes in the formats of other libraries: npz and Minari."""

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wm.artifacts import durable
from wm.episodes.dataset import Dataset
from wm.episodes.schema import Episode


def write_npz(folder: Path, dataset: Dataset, episodes: Sequence[Episode]) -> None:
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


def write_minari(folder: Path, dataset: Dataset, episodes: Sequence[Episode]) -> None:
    """Create the Minari dataset `wm/<name>-v0` in the folder, or append to it. MINARI_DATASETS_PATH has to be the
    folder when it is read."""
    import gymnasium as gym
    import minari
    from minari.data_collector import EpisodeBuffer

    name = "".join(c if c.isalnum() else "-" for c in dataset.recipe["env"]["name"]).strip("-").lower()
    policy = str(dataset.recipe.get("policy", "unknown"))
    append = (folder / "wm" / f"{name}-v0").is_dir()
    buffers = [
        EpisodeBuffer(
            id=None if append else number,
            seed=episode.seed,
            observations=list(episode.frames),
            actions=list(episode.actions[:-1]),
            rewards=episode.rewards[:-1].tolist(),
            terminations=[*[False] * (episode.rows - 2), episode.terminated],
            truncations=[*[False] * (episode.rows - 2), episode.truncated],
        )
        for number, episode in enumerate(episodes)
    ]
    with _variable("MINARI_DATASETS_PATH", str(folder.resolve())), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for an e-mail address and a link to the code
        if append:
            minari.load_dataset(f"wm/{name}-v0").storage.update_episodes(buffers)
            return
        minari.create_dataset_from_buffers(
            f"wm/{name}-v0",
            buffers,
            env=None,
            action_space=dataset.actions.to_gymnasium(),
            observation_space=gym.spaces.Box(0, 255, dataset.frame_shape, np.uint8),
            algorithm_name=policy,
            author="wm",
            description=f"{dataset.recipe['env']['name']}: {policy} policy, by wm collect",
            jpeg_encoding=False,
        )


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    previous = os.environ.get(name)
    # Minari reads its folder from the environment alone; no argument of it takes a path.
    os.environ[name] = value
    try:
        yield
    finally:
        if previous is None:
            del os.environ[name]
        else:
            os.environ[name] = previous
