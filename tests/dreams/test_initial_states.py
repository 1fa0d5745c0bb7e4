import shutil
from pathlib import Path

import pytest

from stages.session import Session
from tests.conftest import SLUG, TINY
from wm.dreams.initial_states import sample_initial_states
from wm.episodes.latents import Latents
from wm.errors import MissingInput
from wm.pretrained import load_mdnrnn


def test_dreams_start_from_real_latents(chain: Path) -> None:
    folder = chain / "runs" / SLUG
    starts = sample_initial_states(Session(TINY, run=folder), load_mdnrnn(folder / "mdnrnn", ""), count=50)
    real = {row.tobytes() for row in Latents.load(folder / "latents").means}
    assert all(z.numpy().tobytes() in real for z in starts.z)
    assert starts.state[0].abs().sum() > 0


def test_without_latents_it_says_what_to_run(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG / "mdnrnn", tmp_path / "mdnrnn")
    with pytest.raises(MissingInput, match="wm train-mdnrnn --env"):
        sample_initial_states(Session(TINY, run=tmp_path), load_mdnrnn(tmp_path / "mdnrnn", ""))
