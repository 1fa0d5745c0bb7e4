import os
import signal
from pathlib import Path

import numpy as np
import pytest

from stages import console
from tests.conftest import make_episode
from tests.stages.conftest import Output
from wm.artifacts import durable, locks


def test_exported_npz_files_hold_the_episodes(workspace: Path, output: Output) -> None:
    folder = Path(output("export", "data/d.zarr", "--to", "npz").strip())
    assert len(list(folder.iterdir())) == 20
    real = make_episode(7, rows=17)
    with np.load(folder / "episode-000007.npz") as held:
        for name in ("frames", "actions", "rewards", "labels"):
            assert np.array_equal(held[name], getattr(real, name)), name
        assert (held["terminated"], held["seed"]) == (True, 1007)
    assert "exists; remove it" in output("export", "data/d.zarr", "--to", "npz", code=64)


def test_the_second_of_two_exports_is_refused_and_sweeps_nothing(workspace: Path, output: Output) -> None:
    target = workspace / "data" / "exports" / "d-npz"
    with locks.exclusive(target):
        durable.staging_path(target).mkdir()
        before = sorted(target.parent.iterdir())
        assert f"process {os.getpid()}" in output("export", "data/d.zarr", "--to", "npz", code=75)
        assert sorted(target.parent.iterdir()) == before
        output("clean", "data")
        assert sorted(target.parent.iterdir()) == before
    output("export", "data/d.zarr", "--to", "npz")
    assert sorted(path.name for path in target.parent.iterdir()) == [".d-npz.lock", "d-npz"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_temporary_folder(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    handlers = {number: signal.getsignal(number) for number in console.stop_signals()}
    monkeypatch.setattr("wm.episodes.export.write_npz", lambda *_: os.kill(os.getpid(), number))
    try:
        console.raise_on_signals()
        assert "stopped" in output("export", "data/d.zarr", "--to", "npz", code=code)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert [path.name for path in (workspace / "data" / "exports").iterdir()] == [".d-npz.lock"]


def test_minari_reads_what_was_exported(workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari", reason="the extra minari is not installed")
    pytest.importorskip("h5py", reason="the extra minari is not installed")
    folder = Path(output("export", "data/d.zarr", "--to", "minari").strip())
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder.resolve()))
    (name,) = minari.list_local_datasets()
    held = minari.load_dataset(name)
    assert (held.total_episodes, held.total_steps) == (20, sum(9 + k for k in range(20)))
    for number, episode in enumerate(held.iterate_episodes()):
        real = make_episode(number, rows=10 + number)
        assert np.array_equal(episode.observations, real.frames)
        assert np.array_equal(episode.actions, real.actions[:-1])
        assert np.allclose(episode.rewards, real.rewards[:-1])
        assert (bool(episode.terminations[-1]), bool(episode.truncations[-1])) == (real.terminated, real.truncated)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # imageio leaves pipes open
def test_films_are_read_back(workspace: Path, output: Output) -> None:
    imageio = pytest.importorskip("imageio.v2", reason="the extra mp4 is not installed")
    pytest.importorskip("imageio_ffmpeg", reason="the extra mp4 is not installed")
    folder = Path(output("export", "data/d.zarr", "--to", "mp4", "--episodes", "2").strip())
    film = imageio.mimread(folder / "episode-000002.mp4", memtest=False)
    assert len(film) == 12
    assert film[0].shape == (128, 128, 3)
    blocks = np.stack(film).reshape(12, 32, 4, 32, 4, 3).mean(axis=(2, 4))
    assert np.abs(blocks.mean(axis=-1) - make_episode(2, rows=12).frames.mean(axis=-1)).mean() < 12


def test_a_missing_extra_gets_its_pip_line(workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "run `pip install -e '.[mp4]'`" in output("export", "data/d.zarr", "--to", "mp4", code=69)


def test_an_absurd_range_and_a_missing_dataset_are_one_sentence(workspace: Path, output: Output) -> None:
    words = ("--to", "npz", "--episodes", "0-99999999999999999999")
    assert "up to 100,000 episodes" in output("export", "data/d.zarr", *words, code=64)
    assert "is not a dataset" in output("export", "data/nowhere.zarr", "--to", "npz", code=66)
