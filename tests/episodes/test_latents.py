from pathlib import Path

import numpy as np
import pytest

from tests.episodes.test_windows import make
from wm.actions import ActionSpace
from wm.episodes.latents import ARRAYS, Latents
from wm.errors import BadData


def test_latents_are_read_as_they_were_written(tmp_path: Path) -> None:
    make().save(tmp_path)
    again = Latents.load(tmp_path)
    for name in ("means", "logvars", "actions", "rewards", "ends", "terminated", "seeds"):
        assert np.array_equal(getattr(again, name), getattr(make(), name)), name
    assert again.space == ActionSpace(count=3)


def test_damaged_latents_are_refused(tmp_path: Path) -> None:
    make().save(tmp_path)
    (tmp_path / ARRAYS / "means" / "zarr.json").write_text("{}")
    with pytest.raises(BadData, match="does not describe the expected array"):
        Latents.load(tmp_path)
