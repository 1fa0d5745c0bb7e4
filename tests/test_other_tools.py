"""Datasets and exports are what the tools that users have read: discrete and continuous actions, gray and colour."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tensorstore
import zarr

from tests.conftest import RECIPE, TINY, make_episode, run
from wm.actions import ActionSpace
from wm.artifacts.disk import DiskBudget
from wm.envs.imported_frames import ImportedFrames
from wm.envs.registry import EnvConfig
from wm.episodes import new_datasets, recordings, schema
from wm.episodes.dataset import Dataset
from wm.episodes.importing import Import
from wm.episodes.schema import Episode
from wm.episodes.writer import Writer, create
from wm.errors import BadData, WmError

SPACES = {
    "discrete": (ActionSpace(count=3), gym.spaces.Discrete(3)),
    "box": (ActionSpace(low=(-2.0,), high=(5.0,)), gym.spaces.Box(-2, 5, (1,))),
    "boxes": (
        ActionSpace(low=(-1.0, 0.0), high=(1.0, 9.0)),
        gym.spaces.Box(np.array([-1, 0], np.float32), np.array([1, 9], np.float32)),
    ),
}
KINDS = [(actions, channels) for actions in SPACES for channels in (1, 3)]


@dataclass
class Collected:
    """A dataset of two parts in `folder`, and its episodes."""

    folder: Path
    episodes: list[Episode]
    space: gym.Space[Any]

    def export(self, kind: str) -> Path:
        """The folder of an export."""
        return self.folder / run(self.folder, "export", "d.zarr", "--to", kind).stdout.strip()


def make(index: int, space: ActionSpace, channels: int) -> Episode:
    """An episode whose frames have a colour for each quarter, as videos can show."""
    random, real = np.random.default_rng(index), make_episode(index, rows=9 + index, terminated=index % 2 == 0)
    colours = random.integers(0, 256, (real.rows, 2, 2, channels), np.uint8)
    actions: Any = real.actions
    if not space.discrete:
        actions = random.uniform(space.low, space.high, (real.rows, space.width)).astype(np.float32)
    return replace(real, frames=colours.repeat(16, axis=1).repeat(16, axis=2), actions=actions)


def imported(collected: Collected, sources: list[Path]) -> Dataset:
    """A dataset of what others recorded, with the frames of the collected one."""
    config = EnvConfig(TINY, size=32, gray=collected.episodes[0].frames.shape[-1] == 1)
    recipe = config.as_recipe(ActionSpace.of(collected.space))
    new, path = Import(sources, recipe, "human", ImportedFrames(config)), collected.folder / "imported.zarr"
    new_datasets.write(path, new, DiskBudget(path), dict, lambda done: None)
    return Dataset.open(path)


def episodes_of(dataset: Dataset) -> list[Episode]:
    return [episode for part in dataset.parts for episode in dataset.episodes_of(part)]


@pytest.fixture(params=KINDS, ids=[f"{actions}-{'gray' if channels == 1 else 'colour'}" for actions, channels in KINDS])
def collected(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    actions, channels = request.param
    space, expected = SPACES[actions]
    env = {"name": "Some Game", "size": 32, "gray": channels == 1}
    episodes = [make(index, space, channels) for index in range(3)]
    monkeypatch.setattr(schema, "PART_ROWS", 15)
    recipe = {**RECIPE, "env": env, "action_space": space.as_json(), "policy": "random", "seed": 3}
    with Writer(create(tmp_path / "d.zarr", recipe)) as writer:
        for episode in episodes:
            writer.add(episode.pack())
    assert len(list((tmp_path / "d.zarr").glob("part-*"))) == 2
    return Collected(tmp_path, episodes, expected)


def test_zarr_and_tensorstore_read_a_dataset(collected: Collected) -> None:
    parts = sorted((collected.folder / "d.zarr").glob("part-*"))
    groups = [zarr.open_group(part, mode="r") for part in parts]
    for name in ("frames", "actions", "rewards", "labels"):
        stored = [
            tensorstore.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{part / name}/"}}).result()
            for part in parts
        ]
        real = np.concatenate([getattr(episode, name) for episode in collected.episodes])
        assert np.array_equal(np.concatenate([group[name][:] for group in groups]), real), name
        assert np.array_equal(np.concatenate([array.read().result() for array in stored]), real), name
    ends = [end for group in groups for end in group.attrs["episodes"]["ends"]]
    assert ends == [9, 19, 11]  # rows within a part


def test_numpy_reads_an_npz_export(collected: Collected) -> None:
    folder = collected.export("npz")
    assert len(list(folder.iterdir())) == len(collected.episodes)
    for real in collected.episodes:
        with np.load(folder / f"episode-{real.index:06d}.npz", allow_pickle=False) as read:
            for name in ("frames", "actions", "rewards", "labels"):
                assert np.array_equal(read[name], getattr(real, name)), name
            assert read["label_names"].tolist() == RECIPE["labels"]
            assert [bool(read[name]) for name in ("terminated", "truncated")] == [real.terminated, real.truncated]


@pytest.mark.extra("minari")
def test_minari_reads_an_export(collected: Collected, monkeypatch: pytest.MonkeyPatch) -> None:
    import minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(collected.export("minari")))
    assert list(minari.list_local_datasets()) == ["wm/some-game-v0"]
    loaded = minari.load_dataset("wm/some-game-v0")
    assert loaded.action_space == collected.space
    assert loaded.observation_space == gym.spaces.Box(0, 255, collected.episodes[0].frames.shape[1:], np.uint8)
    assert loaded.total_episodes == len(collected.episodes)
    for real, read in zip(collected.episodes, loaded.iterate_episodes(), strict=True):
        assert np.array_equal(read.observations, real.frames)
        assert np.array_equal(read.actions, real.actions[:-1])
        assert np.array_equal(np.float32(read.rewards), real.rewards[:-1])
        assert np.flatnonzero(read.terminations).tolist() == [real.rows - 2] * real.terminated
        assert np.flatnonzero(read.truncations).tolist() == [real.rows - 2] * real.truncated


@pytest.mark.extra("mp4")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # imageio leaves pipes open
def test_pyav_reads_an_mp4_export(collected: Collected) -> None:
    av = pytest.importorskip("av", reason="PyAV is not installed; `make test-extras` runs it")
    folder = collected.export("mp4")
    for real in collected.episodes:
        with av.open(folder / f"episode-{real.index:06d}.mp4") as film:
            frames = np.stack([frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)])
            assert film.streams.video[0].average_rate == 30
        assert frames.shape == (real.rows, 128, 128, 3)
        middles = frames[:, 32::64, 32::64].astype(int)
        assert np.abs(middles - real.frames[:, 8::16, 8::16]).max() < 12  # of 255, after YUV and compression


@pytest.mark.extra("minari")
def test_a_minari_export_is_imported_again(collected: Collected) -> None:
    import h5py

    folder = collected.export("minari") / "wm" / "some-game-v0"
    dataset = imported(collected, [folder])
    assert dataset.episodes == len(collected.episodes)
    for real, read in zip(collected.episodes, episodes_of(dataset), strict=True):
        assert np.array_equal(read.actions[:-1], real.actions[:-1])  # the last ones are unused
        for name in ("frames", "rewards", "seed", "terminated", "truncated"):
            assert np.array_equal(getattr(read, name), getattr(real, name)), name
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_0"]["stolen"] = h5py.ExternalLink("secret.hdf5", "/")
    with pytest.raises(BadData, match="from other files"):
        imported(collected, [folder])
    (folder / "data" / "main_data.hdf5").write_bytes(b"no HDF5")
    with pytest.raises(BadData, match="cannot be read by Minari"):
        imported(collected, [folder])


@pytest.mark.extra("minari")
@pytest.mark.parametrize(
    ("array", "shape", "sentence"),
    [
        ("observations", (3, 9000, 9000, 3), "observations of shape .*; expected at most 131,072 pictures of 67.1 MB"),
        ("observations", (1 << 20, 32, 32, 3), "observations of shape .*; expected at most 131,072 pictures"),
        ("rewards", (1 << 45,), "episode_0 takes 35184.4 GB of memory and .* are free"),
        ("infos/self", (), "episode_0, has more than 4,096 arrays; expected those of an episode"),
    ],
)
def test_an_episode_of_minari_that_would_fill_the_memory_is_not_decoded(
    collected: Collected, array: str, shape: tuple[int, ...], sentence: str
) -> None:
    """A file of some kilobytes: what was never written takes no place in it."""
    import h5py

    folder = collected.export("minari") / "wm" / "some-game-v0"
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        episode = file["episode_0"]
        if array == "infos/self":
            episode[array] = episode
        else:
            del episode[array]
            episode.create_dataset(array, shape, np.uint8, chunks=tuple(map(min, shape, (1, 100, 100, 3))))
    with pytest.raises(WmError, match=sentence):
        imported(collected, [folder])


@pytest.mark.extra("mp4")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # imageio leaves pipes open
def test_a_video_of_vast_pictures_is_not_decoded(tmp_path: Path) -> None:
    import imageio_ffmpeg

    film = tmp_path / "vast.mp4"
    source = ("-f", "lavfi", "-i", "color=black:size=6000x4000:rate=1", "-frames:v", "1", "-c:v", "png")
    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", *source, str(film)], check=True)
    np.savez(film.with_suffix(".npz"), actions=[0], rewards=[0.0], terminated=True)
    (recording,) = recordings.read([film])[1]
    with pytest.raises(
        BadData, match="pictures of 6000x4000 pixels; expected at most 22,369,621, so make them smaller"
    ):
        next(iter(recording.frames))


@pytest.mark.extra("mp4")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # imageio leaves pipes open
def test_an_mp4_export_is_imported_again_with_the_actions_beside_it(collected: Collected) -> None:
    films = sorted(collected.export("mp4").iterdir())
    for film, real in zip(films, collected.episodes, strict=True):
        np.savez(film.with_suffix(".npz"), actions=real.actions, rewards=real.rewards, terminated=real.terminated)
    for real, read in zip(collected.episodes, episodes_of(imported(collected, films)), strict=True):
        assert read.rows == real.rows
        assert np.array_equal(read.actions[:-1], real.actions[:-1])
        middles = [frames[:, 8::16, 8::16].astype(int) for frames in (read.frames, real.frames)]
        assert np.abs(middles[0] - middles[1]).max() < 12  # of 255, after YUV and compression
    np.savez(films[0].with_suffix(".npz"), actions=real.actions, rewards=real.rewards, terminated=True)
    with pytest.raises(BadData, match="for 9 frames"):
        imported(collected, films)
    films[0].write_text("#EXTM3U\n/etc/hostname\n")
    with pytest.raises(BadData, match="cannot be read as a video"):
        imported(collected, films)
