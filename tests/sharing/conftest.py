"""A run that was published in a folder, made small for the tests of what may go wrong."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SLUG, outcome, run
from wm.artifacts import durable, manifest
from wm.sharing.contents import CARD, NAME

Answer = Callable[..., str]


@pytest.fixture(scope="package")
def published(chain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run of `chain`, with four episodes; not to be changed."""
    target = tmp_path_factory.mktemp("shared") / "T"
    run(chain, "push", f"runs/{SLUG}", str(target))
    return target


@pytest.fixture
def shared(published: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may spoil, in the folder from which it is pulled."""
    return Path(shutil.copytree(published, tmp_path / "shared"))


@pytest.fixture
def trained(chain: Path, tmp_path: Path) -> Path:
    """The run and the dataset of `chain`, to be changed."""
    for name in ("runs", "data"):
        shutil.copytree(chain / name, tmp_path / name)
    return tmp_path / "runs" / SLUG


@pytest.fixture
def answer(tmp_path: Path) -> Answer:
    """What a command in the test's folder says: one sentence on stderr, and its exit code as expected."""

    def of(*words: str, code: int) -> str:
        done = outcome(tmp_path, *words)
        assert done.returncode == code, done.stdout + done.stderr
        if code == 0:
            return done.stdout
        lines = [line for line in done.stderr.splitlines() if not line.startswith("pull ")]
        assert len(lines) == 1, done.stderr
        assert done.stdout == ""
        return lines[0]

    return of


def nothing_arrived(folder: Path) -> bool:
    """Whether neither a run nor a dataset nor anything staged is there; locks may be."""
    left = [path for place in ("runs", "data") for path in (folder / place).rglob("*")]
    return all(path.name.endswith(".lock") for path in left)


def listed(shared: Path) -> dict[str, Any]:
    """The list of contents as a table, without its digest."""
    body = manifest.read_json(shared / NAME)
    del body["sha256"]
    return body


def relist(shared: Path, **changes: Any) -> None:
    """Make the list agree with what is in the folder now, and then have these changes: as a stranger would."""
    paths = [path for path in shared.rglob("*") if path.is_file() and path.name not in (NAME, CARD)]
    files = {
        path.relative_to(shared).as_posix(): {"size": path.stat().st_size, "sha256": manifest.sha256_file(path)}
        for path in paths
    }
    (shared / NAME).write_bytes(manifest.sealed(listed(shared) | {"files": files} | changes))


def other_seed(artifact: Path) -> dict[str, Any]:
    """The recipe of an artifact, with another seed."""
    recipe: dict[str, Any] = manifest.read_json(artifact / manifest.NAME)["recipe"]
    return recipe | {"settings": recipe["settings"] | {"seed": 99}}


def reseal(artifact: Path, **changes: Any) -> None:
    """Make an artifact's manifest agree with its files, and then have these changes; its fingerprint is its recipe's
    where it is not one of them."""
    body = manifest.read_json(artifact / manifest.NAME)
    names = list(body["files"])
    durable.remove(artifact / manifest.NAME)
    kept = {name: value for name, value in body.items() if name not in ("files", "sha256")}
    kept |= {"fingerprint": manifest.sha256_json(changes.get("recipe", kept["recipe"]))} | changes
    manifest.write(artifact, kept, [name for name in names if (artifact / name).is_file()])
