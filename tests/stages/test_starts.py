import shutil
from pathlib import Path

import pytest

from stages.session import Session
from stages.starts import load_starts
from stages.trained import load_mdnrnn
from tests.conftest import SLUG, TINY
from wm.episodes.latents import Latents
from wm.errors import MissingInput


def test_dreams_start_from_real_latents(chain: Path) -> None:
    folder = chain / "runs" / SLUG
    starts = load_starts(Session(TINY, run=folder), load_mdnrnn(folder / "mdnrnn", ""), count=50)
    real = {row.tobytes() for row in Latents.load(folder / "latents").means}
    assert all(z.numpy().tobytes() in real for z in starts.z)
    assert starts.state[0].abs().sum() > 0


def test_without_latents_it_says_what_to_run(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG / "mdnrnn", tmp_path / "mdnrnn")
    with pytest.raises(MissingInput, match="wm train-mdnrnn --env"):
        load_starts(Session(TINY, run=tmp_path), load_mdnrnn(tmp_path / "mdnrnn", ""))
