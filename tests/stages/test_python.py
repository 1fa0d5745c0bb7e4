"""The stages' functions from Python: silent, and the same as the commands."""

import time
from pathlib import Path

import pytest

from stages.session import Session
from stages.train_controller import train_controller
from stages.train_mdnrnn import train_mdnrnn
from stages.train_vae import train_vae
from tests.conftest import SLUG, TINY
from wm.runtime import Runtime
from wm.settings import ControllerSettings, MdnRnnSettings, VaeSettings


def test_they_find_what_the_commands_made_up_to_date(chain: Path) -> None:
    """Settings, seed and inputs that are given in Python have the fingerprints of the commands."""
    session = Session(
        TINY, run=chain / "runs" / SLUG, data=(chain / "data" / f"{SLUG}.zarr",), caller=Runtime(time.monotonic)
    )
    results = [
        train_vae(session, VaeSettings(steps=60, batch=16, latent=4, validate_every=10)),
        train_mdnrnn(session, MdnRnnSettings(steps=150, batch=8, seq_len=8, hidden=16, validate_every=20)),
        train_controller(
            session, ControllerSettings(popsize=6, max_generations=6, validate_every=2, validation_episodes=4)
        ),
    ]
    assert [result.status for result in results] == ["up to date"] * 3


def test_nothing_is_printed_and_the_caller_is_told(
    chain: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    caller = Runtime(time.monotonic, log=lines.append)
    session = Session(TINY, run=tmp_path / "run", data=(chain / "data" / f"{SLUG}.zarr",), caller=caller)
    result = train_vae(session, VaeSettings(steps=10, batch=8, latent=4, validate_every=10))
    assert (result.status, result.path) == ("created", tmp_path / "run" / "vae")
    assert result.metrics["rows"] > 0
    assert capfd.readouterr() == ("", "")
    again = train_vae(session, VaeSettings(steps=12, batch=8, latent=4, validate_every=10))
    assert again.status == "created"
    assert any("steps 10 -> 12" in line for line in lines)
