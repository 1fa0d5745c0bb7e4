"""A tiny world: a real gymnasium environment whose frames are cheap, registered in every process that needs it."""

import contextlib
import gc
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from unittest import mock

import numpy as np
import psutil
import pytest
import torch
from filelock import FileLock

from stages import cli, console, progress
from stages.session import Session
from tests import object_store
from wm import extras
from wm.episodes.parts import PartBuilder
from wm.episodes.schema import Episode
from wm.episodes.writer import Writer, create
from wm.evaluation import position_probe
from wm.training.checkpoint import Checkpoint, Checkpoints

ROOT = Path(__file__).resolve().parent.parent
TINY = "tests.tiny:Tiny-v0"

torch.set_num_threads(1)
# Every command looks up the versions of all packages; those that a test calls in this process need not.
_lookup = metadata.version
_version = cache(lambda package, paths: _lookup(package))
metadata.version = lambda distribution_name: _version(distribution_name, tuple(sys.path))

# What is synced outlives a loss of power, which no test has; and the tests of one process would wait 20 seconds for the
# disk. That files are synced, in which order, and what follows if the disk refuses are tests that put their own here.
os.fsync = os.fstat  # type: ignore[assignment]

_write_record = Checkpoints._write_record


def _write_and_read_record(checkpoints: Checkpoints, checkpoint: Checkpoint) -> None:
    """A checkpoint that its own schema refuses would be seen only by who resumes; so every one of a test is read."""
    _write_record(checkpoints, checkpoint)
    checkpoints._read_record(checkpoint.record)


Checkpoints._write_record = _write_and_read_record  # type: ignore[method-assign]

# Under nohup or in the background of a script these signals are ignored, and children inherit it; tests send them.
for number, action in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, action)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stages", *arguments]


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WM_WORKERS": "1", **variables}


def alive(process: psutil.Process) -> bool:
    """Not when it is a zombie: it has ended, and whoever adopted it has not asked for its exit code yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def still_running(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that have not ended `seconds` from now."""
    until = time.monotonic() + seconds
    while any(map(alive, processes)) and time.monotonic() < until:
        time.sleep(0.02)
    return [process for process in processes if alive(process)]


def make_episode(index: int, rows: int = 20, size: int = 32, terminated: bool = True) -> Episode:
    """An episode whose every frame is different."""
    random = np.random.default_rng(index)
    return Episode(
        index=index,
        seed=1000 + index,
        frames=random.integers(0, 256, (rows, size, size, 3), np.uint8),
        actions=random.integers(0, 3, rows).astype(np.int32),
        rewards=np.append(random.normal(size=rows - 1), 0).astype(np.float32),
        labels=random.normal(size=(rows, 2)).astype(np.float32),
        terminated=terminated,
        truncated=not terminated,
    )


# What every manifest has, and its kind's metrics.
PROVENANCE = {
    "wall_seconds": 1.0, "finished": "2026-01-01T00:00:00Z", "versions": {}, "python": "3", "machine": "x",
    "commit": None, "command": "wm",
}  # fmt: skip
METRICS = {
    "vae": {
        "validation_error": 1.0, "mean_image_error": 2.0, "validation_kl": 3.0, "best_step": 1, "parameters": 1,
        "rows": 1, "episodes": 1, "probe_summary": "",
    },
    "controller": {
        "generations": 1, "best_generation": 1, "validation_episodes": 1, "env_steps": 1, "parameters": 1,
        "validation_return": 1.0, "seconds": 1.0, "in": "real", "head": "argmax", "ended": "generations", "means": [1],
    },
}  # fmt: skip
RECIPE = {
    "env": {"name": TINY, "size": 32, "gray": False},
    "action_space": {"count": 3, "low": [], "high": []},
    "labels": ["a", "b"],
}


def write_dataset(path: Path, episodes: int) -> Path:
    """Episodes of 20 rows; with `schema.PART_ROWS` at 60, three share a part."""
    with Writer(create(path, RECIPE)) as writer:
        for index in range(episodes):
            writer.add(make_episode(index, terminated=index % 2 == 0).pack())
    return path


def write_part(path: Path, episodes: list[Episode]) -> Path:
    """A part of exactly these episodes."""
    builder = PartBuilder(path, RECIPE, episodes[0].index)
    for episode in episodes:
        builder.add(episode.pack())
    return builder.commit()


SMALL = {
    "collect": ("--episodes", "24", "--size", "32"),
    "train-vae": ("--steps", "60", "--batch", "16", "--latent", "4", "--set", "validate_every=10"),
    "train-mdnrnn": ("--steps", "150", "--batch", "8", "--seq-len", "8", "--hidden", "16",
                     "--set", "validate_every=20"),
    "train-controller": ("--popsize", "6", "--max-generations", "6", "--set", "validate_every=2",
                         "--set", "validation_episodes=4"),
    "dream": ("--dreams", "4", "--max-steps", "20"),
    "evaluate": ("--episodes", "6"),
}  # fmt: skip
SMALLEST = {
    "collect": ("--episodes", "12", "--size", "32"),
    "train-vae": ("--steps", "30", "--batch", "16", "--latent", "4", "--set", "validate_every=10"),
    "train-mdnrnn": ("--steps", "40", "--batch", "8", "--seq-len", "8", "--hidden", "16",
                     "--set", "validate_every=20"),
    "train-controller": ("--popsize", "6", "--max-generations", "3", "--set", "validate_every=2",
                         "--set", "validation_episodes=3"),
    "dream": ("--dreams", "4", "--max-steps", "20"),
    "evaluate": ("--episodes", "4"),
}  # fmt: skip
STAGES = list(SMALL)
SLUG = "tests.tiny-Tiny-v0"


def arguments(stage: str, *more: str) -> tuple[str, ...]:
    return (stage, "--env", TINY, *SMALL[stage], *more)


def small_config(folder: Path, stages: Mapping[str, Sequence[str]] = SMALLEST) -> str:
    """The path of a config file that says for every stage what these flags say."""
    tables = []
    for stage, options in stages.items():
        pairs = zip(options[::2], options[1::2], strict=True)
        lines = [text if name == "--set" else f"{name[2:].replace('-', '_')} = {text}" for name, text in pairs]
        tables.append("\n".join([f"[{stage}]", *lines]))
    (folder / "small.toml").write_text("\n".join(tables) + "\n")
    return str(folder / "small.toml")


@pytest.fixture(autouse=True)
def _console_options() -> Iterator[None]:
    """A command that a test calls in this process may be quiet, or report to another one; the next test's is not."""
    with mock.patch.dict(console._options), mock.patch.dict(progress._options):
        yield


_runtime = Session.runtime.fget  # type: ignore[attr-defined]
IN_PROCESS = property(lambda session: replace(_runtime(session), workers=0))  # in place of `Session.runtime`


def outcome(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What a command does, in this process: most of a short command's time is the import of torch. It has worker
    processes only where their number is given as WM_WORKERS.
    """
    printed, said = io.StringIO(), io.StringIO()
    runtime = Session.runtime if "WM_WORKERS" in variables else IN_PROCESS
    handlers = {number: signal.getsignal(number) for number in console.stop_signals()}
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, environment(**variables)),
        mock.patch.dict(console._options),
        mock.patch.dict(progress._options),
        mock.patch.object(Session, "runtime", runtime),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(said),
    ):
        code = cli.run(list(words))
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return subprocess.CompletedProcess(words, code, printed.getvalue(), said.getvalue())


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command that succeeds."""
    done = outcome(folder, *words, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def pytest_configure(config: pytest.Config) -> None:
    """Of two processes the second begins to import the test files at the other end: their assertions are rewritten once
    then and not in each process, which takes eight seconds of a new checkout."""
    if getattr(config, "workerinput", {}).get("workerid") != "gw1":
        return
    for path in sorted(ROOT.glob("tests/**/test_*.py"), reverse=True):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # which the collection tells
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What has been imported by now lives as long as the tests, and need not be looked through for garbage; for new
    garbage a thirtieth as often as Python does by default, which is a twentieth of the time of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of an extra that is not installed are skipped."""
    for mark in item.iter_markers("extra"):
        if not extras.is_installed(mark.args[0]):
            pytest.skip(f"the extra {mark.args[0]} is not installed; `make test-extras` runs it")


@pytest.fixture(scope="session")
def _store_server() -> Iterator[object_store.Server]:
    with object_store.serve() as server:
        yield server


@pytest.fixture
def s3(_store_server: object_store.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[object_store.Server]:
    """An S3 server, whose answers are sound and at once, and a client that does not try often."""
    monkeypatch.setattr("wm.artifacts.object_store.RETRIES", 1)
    yield _store_server
    _store_server.spoil = object_store.sound


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Untrained weights and random inputs are those of the last run, in whatever order the tests run."""
    # torch.manual_seed also keeps the call's stack until a GPU is used: 2 ms and 30 kB of each test.
    torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def _brief_position_probe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests do not ask how well positions are read; fitting the probe would be most of their time."""
    if "full_position_probe" not in request.fixturenames:
        monkeypatch.setattr(position_probe, "STEPS", 20)


@pytest.fixture
def full_position_probe() -> None:
    """For tests that ask how well positions are read."""


@pytest.fixture(autouse=True)
def _no_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest-xdist gives its processes the width of the terminal it was started from."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every stage has been run, undisturbed, without workers; pytest's processes share the work, and
    with one that a test of tests starts in itself."""
    if inherited := os.environ.get("CHAIN_TO_TEST_WITH"):
        return Path(inherited)
    own = tmp_path_factory.mktemp("chain")
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    original, made = shared / "chain-original", shared / "chain-made"
    with FileLock(shared / "chain.lock"):
        if not made.exists():
            original.mkdir()
            for stage in STAGES:
                shown = json.loads(run(original, *arguments(stage, "--json")).stdout)
                assert shown["status"] == "created"
                assert Path(original, shown["artifact"]).is_dir()
            made.touch()
    shutil.copytree(original, own, dirs_exist_ok=True)
    return own


@pytest.fixture
def chain_copy(chain: Path, tmp_path: Path) -> Path:
    """A copy of the chain for one test to write in."""
    return shutil.copytree(chain, tmp_path / "chain")


@pytest.fixture(autouse=True)
def _chain_is_left_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that leaves files in the chain fails itself, and no test after it; commands may leave locks."""
    if "chain" not in request.fixturenames:
        yield
        return
    folder = request.getfixturevalue("chain")
    before = _visible_files(folder)
    yield
    assert _visible_files(folder) == before, "use chain_copy in a test that writes"


def _visible_files(folder: Path) -> set[str]:
    """Paths in a folder, but for hidden ones."""
    paths = (path.relative_to(folder) for path in folder.rglob("*"))
    return {str(path) for path in paths if not any(part.startswith(".") for part in path.parts)}
