import shutil
from pathlib import Path

import numpy as np
import pytest

from stages.dream import _beside_reality, _lively, _open, _run, dream
from stages.session import Session
from tests.conftest import IN_PROCESS, SLUG, TINY
from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents
from wm.settings import DreamSettings

SETTINGS = DreamSettings(dreams=4, max_steps=10, frames=6, context=4)


def test_dream_and_reality_begin_with_the_same_frame_and_reality_is_real(chain: Path) -> None:
    session = Session(TINY, data=(chain / "data" / f"{SLUG}.zarr",), run=chain / "runs" / SLUG)
    inputs = _open(session, DreamSettings())
    _, real, seen, dreamt = _beside_reality(session, SETTINGS, inputs)
    assert len(real) == len(seen) == len(dreamt) == 6
    assert np.array_equal(seen[0], dreamt[0])
    frames = {frame.tobytes() for frame in FrameReader(inputs.dataset).read(0, inputs.dataset.rows)}
    assert all(frame.tobytes() in frames for frame in real)


def test_what_is_shown_moves_more_than_most_and_is_not_one_of_the_short_episodes() -> None:
    moves = [0.0, 9.0, 0.0, 1.0, 0.0, 2.0, 3.0, 0.0, 0.1]  # the second is short
    lengths = [40, 10, 40, 40, 40, 40, 40, 40, 40]
    rows = [
        move * np.resize([[1.0, 0.0], [0.0, 1.0]], (length, 2)) for move, length in zip(moves, lengths, strict=True)
    ]
    nothing = np.zeros(0)
    latents = Latents(np.concatenate(rows), nothing, nothing, nothing, np.cumsum(lengths), nothing, nothing, None)  # type: ignore[arg-type]
    episode, begin, stop = _lively(latents, np.arange(9), SETTINGS)
    assert episode == 5
    assert stop - begin == SETTINGS.frames
    assert latents.starts[5] + SETTINGS.context <= begin
    assert stop <= latents.ends[5]
    fewer, *_ = _lively(latents, np.array([0, 4]), SETTINGS)
    assert fewer in (0, 4)


def test_without_a_controller_random_policies_dream(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "runtime", IN_PROCESS)
    for name in ("vae", "latents", "mdnrnn"):
        shutil.copytree(chain / "runs" / SLUG / name, tmp_path / name)
    result = dream(Session(TINY, data=(chain / "data" / f"{SLUG}.zarr",), run=tmp_path), SETTINGS)
    assert result.metrics["agent"] == "random linear policies"
    assert 0 < result.metrics["dream_length"] <= 10


def test_the_dream_of_a_controller_of_another_name_does_not_take_that_controllers_place(chain: Path) -> None:
    session = Session(TINY, data=(chain / "data" / f"{SLUG}.zarr",), run=chain / "runs" / SLUG)
    inputs = _open(session, DreamSettings())
    for controller, folder in (("controller", "dream"), ("mine", "dream-mine"), ("controller-2", "dream-controller-2")):
        assert _run(session, DreamSettings(controller=controller), inputs).folder.name == folder
