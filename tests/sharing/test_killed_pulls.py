"""A pull that is killed leaves nothing that a command reads, and the same command brings the run."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SLUG, environment
from tests.sharing.conftest import Answer, nothing_arrived
from tests.sharing.test_pull import DATA, RUN, files_of
from wm.artifacts import durable, manifest

# Runs `wm pull shared` and kills itself at call number N of a function.
KILL = """
import os, signal, sys
from stages.cli import run
from wm.artifacts import durable
from wm.sharing import receive
where, number = sys.argv[1], int(sys.argv[2])
module = {"_copy": receive, "commit_folder": durable, "fsync_tree": durable}[where]
function, calls = getattr(module, where), iter(range(1000))
def counted(*arguments):
    if next(calls) == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments)
setattr(module, where, counted)
sys.exit(run(["pull", "shared"]))
"""


@pytest.fixture
def leftovers(shared: Path) -> Path:
    """What a pull leaves that was killed before it renamed anything: copies under the names of staging."""
    folder = shared.parent
    run = durable.staging_path(folder / RUN)
    shutil.copytree(shared, run, ignore=shutil.ignore_patterns("episodes.zarr", "contents.json", "README.md"))
    shutil.copytree(shared / "episodes.zarr", durable.staging_path(folder / DATA))
    return folder


def test_no_command_reads_what_a_killed_pull_left(leftovers: Path, answer: Answer) -> None:
    assert "nothing yet" in answer("ls", code=0)
    assert "holds no dataset and no artifact" in answer("verify", "runs", code=66)
    assert "there is no run in runs" in answer("report", "runs", code=66)
    assert "there is no run in runs" in answer("compare", "runs", code=66)
    assert "left by a process that was killed" in answer("clean", code=0)
    assert nothing_arrived(leftovers)


def test_the_next_pull_sweeps_it_and_brings_the_run(leftovers: Path, answer: Answer) -> None:
    answer("pull", "shared", code=0)
    assert [path.name for path in (leftovers / "runs").iterdir() if path.is_dir()] == [SLUG]
    assert [path.name for path in (leftovers / "data").iterdir() if path.is_dir()] == [DATA.name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "number"),
    [("_copy", 0), ("_copy", 20), ("_copy", 51), ("commit_folder", 0), ("fsync_tree", 0), ("commit_folder", 1)],
)
def test_a_pull_that_is_killed_brings_the_run_when_it_is_called_again(
    where: str, number: int, shared: Path, answer: Answer
) -> None:
    folder = shared.parent
    words = [sys.executable, "-c", KILL, where, str(number)]
    killed = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (folder / RUN).exists()
    if (folder / DATA).exists():  # the episodes have their name first; they are whole
        assert (where, number) == ("commit_folder", 1)
        answer("verify", "data", code=0)
    listed = answer("ls", code=0)
    assert SLUG not in listed or (folder / DATA).exists()
    answer("pull", "shared", code=0)
    answer("verify", "runs", code=0)
    assert (folder / DATA / manifest.NAME).is_file()
    assert not list(folder.rglob("*.tmp"))
    assert files_of(folder / RUN).items() <= files_of(shared).items()
