from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from tests.episodes.test_windows import make
from wm.actions import ActionSpace
from wm.episodes.latents import ARRAYS, Latents
from wm.errors import BadData, MemoryProblem


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


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("means", np.nan),
        ("logvars", np.inf),
        ("rewards", np.inf),
        ("rewards", np.nan),
        ("rewards", 3e38),
        ("actions", 99),
        ("actions", -1),
        ("ends", 46),  # of 47 rows
        ("ends", 17),  # twice
        ("ends", -4),
    ],
)
def test_values_that_no_encoding_writes_are_refused(column: str, value: float, tmp_path: Path) -> None:
    latents = make()
    getattr(latents, column)[-1 if column == "ends" else 1] = value
    latents.save(tmp_path)
    with pytest.raises(BadData, match=rf"{ARRAYS}/{column} .*; expected .*remove {tmp_path} to encode again"):
        Latents.load(tmp_path)


def test_latents_that_memory_does_not_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make([20, 30]).save(tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100))
    with pytest.raises(MemoryProblem, match="of memory and 100 B are free"):
        Latents.load(tmp_path)
