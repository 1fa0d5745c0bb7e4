"""`torchrun -m stages.cli train-vae` and `train-mdnrnn`, with its real processes on this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from stages.collect import collect
from stages.session import Session
from tests.conftest import environment, outcome, run, still_running
from wm.artifacts.manifest import sha256_file
from wm.ranks import PartDone, Ranks
from wm.settings import CollectSettings

VAE = ("train-vae", "--env", "Catch", "--batch", "20", "--latent", "4", "--device", "cpu", "--steps")
MDNRNN = ("train-mdnrnn", "--env", "Catch", "--batch", "12", "--device", "cpu", "--steps", "12")
EIGHT = ("--set", "pieces=8")
PATIENCE = 600.0  # seconds for what takes ten on an idle machine


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `data/Catch.zarr`, which the tests only read."""
    folder = tmp_path_factory.mktemp("episodes")
    session = Session("Catch", data=(folder / "data" / "Catch.zarr",), workers=1)
    collect(session, CollectSettings(episodes=12, size=32, policy="random"))
    return folder


@pytest.fixture
def workspace(episodes: Path, tmp_path: Path) -> Path:
    (tmp_path / "data").symlink_to(episodes / "data")
    return tmp_path


def start(
    folder: Path, processes: int, *words: str, options: tuple[str, ...] = (), **variables: str
) -> "subprocess.Popen[str]":
    # `--`: else torchrun takes --run for its own --run-path
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), *options, "-m", "--"]
    return subprocess.Popen(
        [*torchrun, "stages.cli", *words], cwd=folder, env=environment(**variables), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(torchrun: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it has printed to stdout and stderr."""
    try:
        return torchrun.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        torchrun.terminate()  # its processes too
        torchrun.communicate()
        raise


def torchrun(folder: Path, processes: int, *words: str, code: int = 0) -> tuple[str, str]:
    """What a command prints to stdout and stderr."""
    done = start(folder, processes, *words)
    shown, said = finish(done)
    assert done.returncode == code, said
    return shown, said


def weights(folder: Path, artifact: str = "Catch/vae") -> str:
    return sha256_file(folder / "runs" / artifact / "weights.safetensors")


def besides_v(said: str) -> str:
    """Without the warning that a V of ten steps deserves, on one kind of CPU or another."""
    return "".join(line for line in said.splitlines(keepends=True) if not line.startswith("warning: V's pictures"))


def sentences(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("wm: ")]


@pytest.mark.slow
def test_two_processes_train_the_weights_of_one(workspace: Path) -> None:
    shown, said = torchrun(workspace, 2, *VAE, "10", "--json", "--run", "runs/two")
    assert json.loads(shown)["metrics"]["ranks"] == 2
    assert besides_v(said) == ""
    assert said.count("warning: ") <= 1, "by one process"
    run(workspace, *VAE, "10", *EIGHT)
    assert weights(workspace, "two/vae") == weights(workspace)
    recipe = json.loads((workspace / "runs/two/vae/manifest.json").read_text())["recipe"]
    assert recipe["settings"]["pieces"] == 8


def test_other_commands_are_refused_under_torchrun(tmp_path: Path) -> None:
    """In this process, with torchrun's variables."""
    done = outcome(tmp_path, "collect", "--env", "Catch", TORCHELASTIC_RUN_ID="none", RANK="0")
    assert (done.returncode, done.stderr) == (
        64, "wm: torchrun would run collect in every process; expected one of train-vae, train-mdnrnn.\n"
    )  # fmt: skip
    done = outcome(tmp_path, "collect", "--env", "Catch", TORCHELASTIC_RUN_ID="none", RANK="1")
    assert done.returncode == 64


def test_a_batch_smaller_than_its_pieces_is_refused(tmp_path: Path) -> None:
    words = ("train-vae", "--env", "Catch", "--batch", "7")
    done = outcome(tmp_path, *words, TORCHELASTIC_RUN_ID="none", RANK="0")
    assert done.returncode == 64
    assert done.stderr.startswith("wm: --batch is 7 but a batch is split into 8 pieces; give a larger batch")


@pytest.mark.slow
def test_eight_processes_train_the_v_and_m_of_one(workspace: Path) -> None:
    found = set()
    for processes in (1, 8):
        where = "--run", f"runs/{processes}"
        torchrun(workspace, processes, *VAE, "4", *where)
        torchrun(workspace, processes, *MDNRNN, *where, "--network", "paper", "--seq-len", "8", "--hidden", "8")
        found.add((weights(workspace, f"{processes}/vae"), weights(workspace, f"{processes}/mdnrnn")))
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize("network", ["paper", "rollout"])
def test_one_two_and_four_processes_train_the_same_v_and_m(workspace: Path, network: str) -> None:
    sizes = {"paper": ("--seq-len", "8", "--hidden", "8"), "rollout": ("--hidden", "0", "--set", "rollout_steps=4")}
    found = set()
    for processes in (1, 2, 4):
        where = "--run", f"runs/{processes}"
        torchrun(workspace, processes, *VAE, "8", *where, "--set", "accumulate=2")
        torchrun(workspace, processes, *MDNRNN, *where, "--network", network, *sizes[network])
        found.add((weights(workspace, f"{processes}/vae"), weights(workspace, f"{processes}/mdnrnn")))
    assert len(found) == 1


def wait_for_step(folder: Path, step: int) -> None:
    """Until a checkpoint of this step is there."""
    until = time.monotonic() + PATIENCE
    while not (folder / f"runs/Catch/vae.partial/checkpoints/step-{step:08d}.json").exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def processes_of(torchrun: "subprocess.Popen[str]") -> dict[int, psutil.Process]:
    """The processes of torchrun by their numbers."""
    children = psutil.Process(torchrun.pid).children()
    return {int(child.environ()["RANK"]): child for child in children if "RANK" in child.environ()}


LONG = (*VAE, "60", "--set", "validate_every=10")


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1, 3])
def test_a_killed_process_ends_all_and_another_number_resumes(workspace: Path, killed: int) -> None:
    run(workspace, *LONG, *EIGHT, "--run", "runs/undisturbed")
    four = start(workspace, 4, *LONG)
    wait_for_step(workspace, 20)
    ranks = processes_of(four)
    ranks[killed].kill()
    _, said = finish(four)
    assert four.returncode == 1
    (sentence,) = sentences(said)
    assert sentence.startswith(
        "wm: a process of torchrun has ended, or not answered for 120 s; the same command resumes"
    )
    assert not still_running(list(ranks.values()), 5)
    _, said = torchrun(workspace, 2, *LONG)
    assert "train-vae Catch: resumes at step " in said
    assert weights(workspace) == weights(workspace, "undisturbed/vae")


@pytest.mark.slow
def test_a_process_that_stands_still_ends_all_after_the_timeout(workspace: Path) -> None:
    two = start(workspace, 2, *LONG, WM_WORKER_TIMEOUT="4")
    wait_for_step(workspace, 10)
    ranks = processes_of(two)
    ranks[1].send_signal(signal.SIGSTOP)
    until = time.monotonic() + PATIENCE
    while psutil.pid_exists(ranks[0].pid) and ranks[0].status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)
    ranks[1].send_signal(signal.SIGCONT)
    _, said = finish(two)
    assert "or not answered for 4 s" in sentences(said)[0]


@pytest.mark.slow
def test_a_signal_to_torchrun_saves_the_step_and_alone_the_same_command_resumes(workspace: Path) -> None:
    run(workspace, *LONG, *EIGHT, "--run", "runs/undisturbed")
    two = start(workspace, 2, *LONG)
    wait_for_step(workspace, 10)
    two.send_signal(signal.SIGTERM)
    _, said = finish(two)
    assert sentences(said) == ["wm: stopped; everything finished so far is kept, and the same command resumes."]
    run(workspace, *LONG, *EIGHT)
    assert weights(workspace) == weights(workspace, "undisturbed/vae")


@pytest.mark.slow
def test_an_error_is_said_once(workspace: Path) -> None:
    _, said = torchrun(workspace, 3, *VAE, "10", code=1)
    assert sentences(said) == [
        "wm: torchrun has started 3 processes for the 8 pieces of a batch; start 1, 2, 4, 8 of them, or give another "
        "number with --set pieces=."
    ]
    _, said = torchrun(workspace, 2, "train-vae", "--env", "Pong", "--steps", "10", code=1)
    assert len(sentences(said)) == 1
    assert "data/Pong.zarr" in said
    _, said = torchrun(workspace, 2, "train-vae", "--set", "no=1", code=1)
    assert len(sentences(said)) == 1


def test_an_error_of_one_process_before_it_meets_the_others_is_said(tmp_path: Path) -> None:
    """As where one machine lacks a file or a package. Alone it is ended by nobody; one that torchrun ends is silent."""
    second = {"TORCHELASTIC_RUN_ID": "a", "RANK": "1", "LOCAL_RANK": "1"}
    done = outcome(tmp_path, "train-vae", "--config", "lost.toml", **second)
    assert done.returncode == 66
    assert "lost.toml" in done.stderr


def test_a_variable_of_torchrun_alone_means_nothing(tmp_path: Path) -> None:
    done = outcome(tmp_path, "train-vae", "--config", "lost.toml", LOCAL_RANK="first")
    assert done.returncode == 66


@pytest.mark.slow
def test_a_plan_is_printed_once_and_a_memory_limit_ends_all(workspace: Path) -> None:
    shown, said = torchrun(workspace, 2, *VAE, "60", "--dry-run", "--json")
    (plan,) = json.loads(shown)["plan"]
    assert (plan["stage"], said) == ("train-vae", "")
    assert not (workspace / "runs").exists()
    _, said = torchrun(workspace, 2, *VAE, "60", "--memory-limit", "1MB", code=1)
    (sentence,) = sentences(said)
    assert "more than --memory-limit 1.0 MB" in sentence
    _, said = torchrun(workspace, 2, *VAE, "60")
    assert "train-vae Catch: resumes at step 1 of 60" in said


def slow_publishing(folder: Path, seconds: float, patience: float) -> str:
    """A PYTHONPATH with which the first process publishes late, and torchrun waits shorter for other machines."""
    (folder / "sitecustomize.py").write_text(f"""
import os
if "TORCHELASTIC_RUN_ID" not in os.environ:
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    initialize = LocalElasticAgent.__init__
    LocalElasticAgent.__init__ = lambda *words, **more: initialize(*words, **more, exit_barrier_timeout={patience})
elif os.environ["RANK"] == "0":
    import time
    from wm.artifacts.runs import Builder
    publish = Builder.publish
    Builder.publish = lambda *words: time.sleep({seconds}) or publish(*words)
""")
    return os.pathsep.join([str(folder), environment()["PYTHONPATH"]])


@pytest.mark.slow
def test_two_machines_end_together_after_the_first_process_has_published(workspace: Path) -> None:
    """Two torchruns with an address each; the second meets them, the first process is the first one's. If the second
    ended first, the meeting place would go with it, and the other would end its process in the middle of its work."""
    path = slow_publishing(workspace, seconds=30.0, patience=10.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free.getsockname()[1]}")
    torchruns = [
        start(
            workspace, 1, *VAE, "10", options=(*meeting, "--local-addr", f"127.0.0.{number}", "--rdzv-conf", host),
            PYTHONPATH=path,
        )
        for number, host in ((1, "is_host=0"), (2, "is_host=1"))
    ]  # fmt: skip
    (shown, _), (nothing, _) = said = [finish(torchrun) for torchrun in torchruns]
    assert [torchrun.returncode for torchrun in torchruns] == [0, 0], said
    assert [besides_v(said[0][1]), said[1][1]] == ["", ""]
    assert shown.startswith("runs/Catch/vae: created")
    assert nothing == ""


def test_what_is_trained_parts_from_the_other_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ranks = Mock(spec=Ranks, leads=False)
    monkeypatch.setattr("stages.session.open_ranks", lambda *_: ranks)
    monkeypatch.setattr("stages.train_vae.train_vae", Mock(side_effect=PartDone))
    done = outcome(tmp_path, *VAE, "4", TORCHELASTIC_RUN_ID="none", RANK="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    ranks.close.assert_called_once()


@pytest.mark.slow
def test_what_is_up_to_date_is_not_trained_again(workspace: Path) -> None:
    torchrun(workspace, 2, *VAE, "10")
    before = os.stat(workspace / "runs/Catch/vae/manifest.json").st_mtime_ns
    shown, _ = torchrun(workspace, 2, *VAE, "10")
    assert shown.startswith("runs/Catch/vae: up to date")
    assert os.stat(workspace / "runs/Catch/vae/manifest.json").st_mtime_ns == before
