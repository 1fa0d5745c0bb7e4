from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.conftest import SLUG
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents
from wm.pretrained import load_mdnrnn, load_vae
from wm.report import dream_pictures
from wm.report.dream_pictures import picture_dream
from wm.runtime import Runtime


@pytest.fixture(autouse=True)
def few_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dream_pictures, "FRAMES", 6)
    monkeypatch.setattr(dream_pictures, "CONTEXT", 4)


def test_dream_and_reconstruction_have_the_same_first_frame_and_real_frames_are_real(
    chain: Path, tmp_path: Path
) -> None:
    run, dataset = chain / "runs" / SLUG, Dataset.open(chain / "data" / f"{SLUG}.zarr")
    vae, mdnrnn = load_vae(run / "vae", ""), load_mdnrnn(run / "mdnrnn", "")
    picture = picture_dream(vae, mdnrnn, Latents.load(run / "latents"), dataset, 1.0, 0)
    assert len(picture.real) == len(picture.reconstruction) == len(picture.dream) == 6
    assert np.array_equal(picture.reconstruction[0], picture.dream[0])
    frames = {frame.tobytes() for frame in FrameReader(dataset).read(0, dataset.rows)}
    assert all(frame.tobytes() in frames for frame in picture.real)
    picture.write(Runtime(), tmp_path, "Tiny", 1.0)
    assert {"dream.gif", "dream.png"} <= {path.name for path in tmp_path.iterdir()}
    with Image.open(tmp_path / "dream.gif") as movie:
        assert movie.n_frames == 6  # type: ignore[attr-defined]


def test_the_window_moves_more_than_most_and_is_of_no_short_episode() -> None:
    moves = [0.0, 9.0, 0.0, 1.0, 0.0, 2.0, 3.0, 0.0, 0.1]  # the second is short
    lengths = [40, 10, 40, 40, 40, 40, 40, 40, 40]
    rows = [
        move * np.resize([[1.0, 0.0], [0.0, 1.0]], (length, 2)) for move, length in zip(moves, lengths, strict=True)
    ]
    empty = np.zeros(0)
    latents = Latents(np.concatenate(rows), empty, empty, empty, np.cumsum(lengths), empty, empty, None)  # type: ignore[arg-type]
    episode, first, end = dream_pictures._window(latents, np.arange(9), 4)
    assert episode == 5
    assert end - first == 6
    assert latents.starts[5] + 4 <= first
    assert end <= latents.ends[5]
    assert dream_pictures._window(latents, np.array([0, 4]), 4)[0] in (0, 4)


def test_the_context_shrinks_where_all_episodes_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dream_pictures, "CONTEXT", 16)
    monkeypatch.setattr(dream_pictures, "FRAMES", 120)
    for rows, context in ((2, 0), (3, 0), (8, 3), (18, 8), (19, 16)):
        ends = np.arange(1, 5) * rows
        seeds = np.arange(4)
        latents = Latents(np.zeros((4 * rows, 2)), None, None, None, ends, ends, seeds, None)  # type: ignore[arg-type]
        dataset = SimpleNamespace(rows=4 * rows)
        held_out = np.array([True, False, False, False])
        found, episodes = dream_pictures._long_episodes(latents, held_out, dataset)  # type: ignore[arg-type]
        assert (found, episodes.tolist()) == (context, [0])
        _, first, end = dream_pictures._window(latents, episodes, context)
        assert end - first >= 2
        assert (first % rows) >= context
