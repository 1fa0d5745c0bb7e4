"""The world of a run in which every stage has been run."""

from pathlib import Path

import pytest

import tests.tiny  # noqa: F401 # registers the environment, as wm.load asks for
import wm
from tests.conftest import SLUG


@pytest.fixture(scope="session")
def run(chain: Path) -> Path:
    return chain / "runs" / SLUG


@pytest.fixture(scope="session")
def world(run: Path) -> wm.World:
    return wm.load(run)
