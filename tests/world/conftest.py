"""The world of a run in which every stage has been run."""

from pathlib import Path

import pytest

import tests.tiny  # noqa: F401 # registers the environment, as wm.load asks for
import wm
from tests.conftest import SLUG, SMALLEST
from tests.conftest import run as command


@pytest.fixture(scope="session")
def run(chain: Path) -> Path:
    return chain / "runs" / SLUG


@pytest.fixture(scope="session")
def steered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of V and M with a box of actions."""
    folder = tmp_path_factory.mktemp("steered")
    for stage in ("collect", "train-vae", "train-mdnrnn"):
        command(folder, stage, "--env", "tests.tiny:Steered-v0", *SMALLEST[stage])
    return folder / "runs" / "tests.tiny-Steered-v0"


@pytest.fixture(scope="session")
def world(run: Path) -> wm.World:
    return wm.load(run)
