"""A Dask cluster of real processes on this machine, and what can happen to it."""

import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from tests.conftest import SLUG, TINY, outcome, run, still_running
from tests.rollouts.clusters import dask_process, local_cluster
from wm.artifacts import manifest
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.schema import PackedEpisode
from wm.errors import MissingPackage, RecipeMismatch, Unreachable, UsageProblem, WmError
from wm.evolution.search_log import LOG
from wm.rollouts import dask_cluster, executor_workers
from wm.rollouts.collection import Collection, describe, play_episode
from wm.rollouts.dask_cluster import parse_executor
from wm.rollouts.process_workers import ProcessWorkers
from wm.rollouts.worker_process import heartbeat
from wm.rollouts.workers import Workers, open_workers
from wm.runtime import Runtime

cluster_only = pytest.mark.extra("cluster")


def work(number: int, seconds: float = 0.3) -> int:
    """A task that plays on."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        heartbeat()
        time.sleep(0.01)
    return number


@pytest.fixture
def cluster() -> Iterator[Any]:
    with local_cluster(3) as cluster:
        yield cluster


def open_(cluster: Any, log: Any = print, **how: Any) -> Workers:
    return open_workers(Runtime(time.monotonic, log, executor=f"dask:{cluster.scheduler_address}", **how))


def process_of(cluster: Any, worker: int) -> psutil.Process:
    return psutil.Process(cluster.workers[worker].pid)


@pytest.mark.parametrize("spec", ["dask", "dask:localhost:8786", "dask:tcp://host", "ray:tcp://host:1", "processes"])
def test_another_form_of_executor_is_refused(spec: str) -> None:
    with pytest.raises(UsageProblem, match="expected local, dask:tcp://host:port or dask:tls://host:port"):
        parse_executor(spec)


@pytest.mark.parametrize("spec", ["dask:tcp://10.0.0.1:8786", "dask:tls://head-node.lab:80", "dask:tcp://[::1]:8786"])
def test_an_address_is_what_dask_calls_it(spec: str) -> None:
    assert parse_executor(spec) == spec.removeprefix("dask:")


def test_without_the_extra_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    with mock.patch("importlib.util.find_spec", return_value=None), pytest.raises(MissingPackage, match=r"\[cluster\]"):
        open_workers(Runtime(time.monotonic, executor="dask:tcp://localhost:1"))


@cluster_only
@pytest.mark.parametrize("listens", [False, True])
def test_an_address_that_does_not_answer_is_a_sentence_within_the_time_limit(
    listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 2.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        began = time.monotonic()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unreachable, match=f"no Dask scheduler answers at {address}") as caught:
            open_workers(Runtime(time.monotonic, executor=f"dask:{address}"))
    assert time.monotonic() - began < 60  # imports included, on a busy machine
    assert caught.value.exit_code == 69
    assert "\n" not in str(caught.value)


@cluster_only
def test_a_cluster_without_workers_is_waited_for_and_then_given_up() -> None:
    told: list[str] = []
    with local_cluster(0) as cluster, pytest.raises(Unreachable, match="has no worker; start some"):
        open_(cluster, told.append, worker_timeout=1.0)
    assert len(told) == 1
    assert "waiting for a worker" in told[0]


@cluster_only
def test_a_worker_that_is_killed_costs_a_repeated_task(cluster: Any) -> None:
    results = {}
    with open_(cluster) as workers:
        for number, value in workers.map(work, [(k,) for k in range(12)]):
            results[number] = value
            if len(results) == 3:
                process_of(cluster, 0).kill()
    assert results == {k: k for k in range(12)}


@cluster_only
def test_a_nanny_that_is_killed_takes_its_worker_along_and_costs_a_repeated_task(tmp_path: Path) -> None:
    results: dict[int, int] = {}
    with ExitStack() as stack:
        cluster = stack.enter_context(local_cluster(1))
        options = ("worker", cluster.scheduler_address, "--nthreads", "1", "--nworkers", "1")
        nanny = stack.enter_context(dask_process(tmp_path, *options))
        workers = stack.enter_context(open_(cluster, worker_timeout=30.0))
        until = time.monotonic() + 120
        while workers.count < 2 and time.monotonic() < until:
            list(workers.map(work, [(0,)]))
        assert workers.count == 2
        below = psutil.Process(nanny.pid).children(recursive=True)
        for number, value in workers.map(work, [(k,) for k in range(12)]):
            results[number] = value
            if len(results) == 3:
                nanny.kill()
        assert not still_running(below, 30)
    assert results == {k: k for k in range(12)}


@cluster_only
def test_a_worker_that_is_stopped_costs_a_task_that_is_asked_again(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_workers, "SOONEST", 1.0)
    results, stopped = {}, process_of(cluster, 1)
    with open_(cluster) as workers:
        try:
            for number, value in workers.map(work, [(k,) for k in range(12)]):
                results[number] = value
                if len(results) == 3:
                    stopped.send_signal(signal.SIGSTOP)
        finally:
            stopped.send_signal(signal.SIGCONT)
    assert results == {k: k for k in range(12)}


@cluster_only
def test_when_the_scheduler_has_gone_the_work_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(local_cluster(1))
        workers = stack.enter_context(open_(cluster, worker_timeout=5.0))
        monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 2.0)
        with pytest.raises(Unreachable, match=r"out of reach: .* the same command resumes"):  # noqa: PT012
            for _ in workers.map(work, [(k,) for k in range(100)]):
                cluster.scheduler.stop()
                cluster.loop.add_callback(cluster.scheduler.close)
    assert WmError.exit_code != Unreachable.exit_code == 69


@cluster_only
def test_tasks_that_nobody_waits_for_end(cluster: Any) -> None:
    with open_(cluster) as workers:
        next(workers.map(work, [(k, 0.1 if k == 0 else 600.0) for k in range(3)]))
        began = time.monotonic()
        assert len(list(workers.map(work, [(k, 0.1) for k in range(3)]))) == 3
    assert time.monotonic() - began < 60


@cluster_only
def test_workers_of_another_kind_of_cpu_are_refused_or_accepted_with_a_warning() -> None:
    told: list[str] = []
    other = {"env": {"ATEN_CPU_CAPABILITY": "default"}}
    with local_cluster(1, **other) as cluster:
        with pytest.raises(RecipeMismatch, match=r"CPU has ATEN_CPU_CAPABILITY=default; .*--executor-any-cpu"):
            open_(cluster)
        with open_(cluster, told.append, any_cpu=True) as workers:
            assert list(workers.map(abs, [(-1,)])) == [(0, 1)]
    assert any("1 of 1 workers have another kind of CPU" in line for line in told)


@pytest.mark.parametrize("any_cpu", [False, True])
def test_a_manifest_says_whether_other_cpus_were_accepted(
    any_cpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def open_here(runtime: Runtime) -> Workers:
        asked.append(runtime.any_cpu)
        return ProcessWorkers(0, runtime.raise_if_stopped, runtime.clock)

    monkeypatch.setattr(dask_cluster, "open_cluster", open_here)
    words = ("evaluate", "--env", TINY, "--agent", "random", "--episodes", "2")
    run(tmp_path, *words, "--executor", "dask:tcp://head:8786", *["--executor-any-cpu"] * any_cpu)
    (made,) = (tmp_path / "runs" / SLUG / "evaluation").glob(f"*/{manifest.NAME}")
    provenance = manifest.read_json(made)["provenance"]
    assert (provenance["executor"], provenance["any_cpu"], set(asked)) == ("dask", any_cpu, {any_cpu})
    assert "up to date" in run(tmp_path, *words).stdout, "an executor is part of no recipe"


def play_slowly(collection: Collection, index: int) -> PackedEpisode:
    """An episode whose task lasts long enough to be disturbed."""
    work(index)
    return play_episode(collection, index)


@cluster_only
def test_episodes_are_the_same_bytes_as_on_this_machine(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way one worker is killed, and another one stopped."""
    monkeypatch.setattr(executor_workers, "SOONEST", 1.0)
    collection, _ = describe(EnvConfig("CartPole", size=32), "random", 0, 0)
    stopped = process_of(cluster, 1)
    with open_(cluster) as workers:
        played = dict(workers.map(play_slowly, [(collection, k) for k in range(12)]))  # imports what is slow to import
        assert sorted(played) == list(range(12))
        played.clear()
        try:
            for index, episode in workers.map(play_slowly, [(collection, k) for k in range(12)]):
                played[index] = episode
                if len(played) == 2:
                    process_of(cluster, 0).kill()
                if len(played) == 5:
                    stopped.send_signal(signal.SIGSTOP)
        finally:
            stopped.send_signal(signal.SIGCONT)
    assert sorted(played) == list(range(12))
    for index, episode in played.items():
        own = play_episode(collection, index)
        assert (episode.packed, episode.actions.tolist()) == (own.packed, own.actions.tolist())


@cluster_only
def test_behind_tls_a_cluster_plays_for_those_who_have_its_certificates(tmp_path: Path) -> None:
    """They are named by the variables of docs/how-to.md."""
    pytest.importorskip("cryptography", reason="cryptography makes the certificates; `make test-extras` has it")
    import dask
    from distributed.security import Security

    security, variables = Security.temporary(), dict[str, str]()
    for name, field in (("CA_FILE", "ca_file"), ("CLIENT__CERT", "client_cert"), ("CLIENT__KEY", "client_key")):
        (tmp_path / f"{field}.pem").write_text(getattr(security, f"tls_{field}"))
        variables[f"DASK_DISTRIBUTED__COMM__TLS__{name}"] = str(tmp_path / f"{field}.pem")
    with local_cluster(1, protocol="tls://", security=security) as cluster:
        assert cluster.scheduler_address.startswith("tls://")
        with pytest.raises(Unreachable, match="no Dask scheduler answers at tls://"):
            open_(cluster)
        known = dask.config.merge(dask.config.config, dask.config.collect_env(variables))
        with mock.patch.dict(dask.config.config, known), open_(cluster) as workers:
            assert list(workers.map(abs, [(-1,)])) == [(0, 1)]


@contextmanager
def killed_once_there(path: Path, cluster: Any, worker: int) -> Iterator[None]:
    """The worker is killed as soon as there is a file `path`."""
    ended, killed = threading.Event(), threading.Event()

    def kill() -> None:
        while not ended.wait(0.01):
            if path.exists():
                process_of(cluster, worker).kill()
                killed.set()
                return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert killed.is_set()


@cluster_only
def test_commands_leave_the_same_episodes_weights_and_returns(chain: Path, cluster: Any, tmp_path: Path) -> None:
    """Of collect, and of a search and a policy gradient; each of these loses a worker after its first iteration."""
    trainings = {
        "cma": ("--algo", "cma", "--popsize", "6", "--max-generations", "4"),
        "ppo": ("--algo", "ppo", "--set", "max_env_steps=4000", "--set", "rollout_steps=50"),
    }
    left = []
    for executor in ("", f"dask:{cluster.scheduler_address}"):
        folder = tmp_path / (executor.partition(":")[0] or "here")
        shutil.copytree(chain, folder)
        how = {"WM_EXECUTOR": executor, "WM_WORKERS": "1"} if executor else {}
        run(folder, "collect", "--env", TINY, "--episodes", "9", "--size", "32", "--data", "data/new.zarr", **how)
        digests = [Dataset.open(folder / "data" / "new.zarr").fingerprint]
        for worker, (name, words) in enumerate(trainings.items()):
            artifact = folder / "runs" / SLUG / name
            log = artifact.with_name(f"{name}.partial") / LOG
            with killed_once_there(log, cluster, worker) if executor else nullcontext():
                validations = ("--set", "validation_episodes=3")
                run(folder, "train-controller", "--env", TINY, "--name", name, *words, *validations, **how)
            made = manifest.read_json(artifact / manifest.NAME)
            digests += [made["files"]["weights.safetensors"]["sha256"], str(made["metrics"]["validation_return"])]
            assert made["provenance"].get("executor", "") == executor.partition(":")[0]
        left.append(digests)
    assert left[0] == left[1]


@cluster_only
def test_errors_of_a_task_have_their_sentence_and_exit_code(cluster: Any, tmp_path: Path) -> None:
    done = outcome(
        tmp_path, "collect", "--env", "tests.tiny:Nowhere-v0", "--episodes", "3",
        WM_WORKERS="1", WM_EXECUTOR=f"dask:{cluster.scheduler_address}",
    )  # fmt: skip
    assert done.returncode == UsageProblem.exit_code
    assert "Nowhere" in done.stderr
