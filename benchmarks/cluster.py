"""Workers of a Dask cluster on this machine against the own processes, in whole Pong episodes; what a task of PPO takes
besides its play, where all that client and scheduler send arrives later; and what a generation sends between them with
1,000 workers: real tasks and replies, and Dask's messages around them."""

import pickle
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import rates, report
from benchmarks.policy_gradient import STEPS, new_places, play, small_controller, small_vae
from wm import extras
from wm.artifacts import manifest
from wm.envs.registry import EnvConfig
from wm.models.controller import ControllerConfig
from wm.policy_gradient.network import ActorCritic
from wm.policy_gradient.real_rollouts import Place, Played
from wm.rollouts.collection import describe, play_episode
from wm.rollouts.executor_workers import ExecutorWorkers
from wm.rollouts.loop import EpisodeJob, EpisodeResult
from wm.rollouts.players import PolicySpec, play_jobs, play_tasks
from wm.rollouts.process_workers import ProcessWorkers
from wm.rollouts.workers import Workers, open_workers
from wm.runtime import Runtime

# Workers on either side, as in the table of decision 0024.
PROCESSES = 2
EPISODES = 8  # a window
CANDIDATES, PARAMETERS, EPISODES_EACH, WORKERS = 64, 867, 16, 1000  # the paper's generation of CarRacing
# Enough for a mean of the CPU time that is independent of the first tasks.
EMPTY_TASKS = 100
IDENTITY_BYTES = 1000 * 50 / 1000  # a second and worker: `dask_cluster.ASK_ALL_EVERY` asks for 1 kB of each
TRIPS = 6  # of which the fastest counts: the first loads the environments, and the machine may be busy
LATE = 20  # milliseconds
GENERATION_SECONDS = 6.2  # with 1,000 workers, where late tasks are asked again (wm/rollouts/executor_workers.py)


def nothing(*_: Any) -> None:
    pass


@contextmanager
def counted(address: str, late: float = 0.0) -> Iterator[tuple[str, Callable[[], int]]]:
    """An address that passes everything on to `address`, either way `late` seconds later, and the bytes that went so
    far."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    total = [0]

    def receive(source: socket.socket, sent: "SimpleQueue[tuple[float, bytes]]") -> None:
        data = b"?"
        while data:
            data = source.recv(1 << 16)
            total[0] += len(data)
            sent.put((time.monotonic() + late, data))

    def deliver(sent: "SimpleQueue[tuple[float, bytes]]", target: socket.socket) -> None:
        while (arrival := sent.get())[1]:
            time.sleep(max(arrival[0] - time.monotonic(), 0))
            target.sendall(arrival[1])

    def accept(server: socket.socket) -> None:
        while True:
            try:
                one = server.accept()[0]
            except OSError:
                return
            other = socket.create_connection((host, int(port)))
            for source, target in ((one, other), (other, one)):
                sent: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                threading.Thread(target=receive, args=(source, sent), daemon=True).start()
                threading.Thread(target=deliver, args=(sent, target), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}", lambda: total[0]
        server.shutdown(socket.SHUT_RDWR)


class Simulated(Executor):
    """Answers every task at once; `bytes` is the sum of tasks and replies."""

    bytes = 0

    def submit(self, function: Any, /, *arguments: Any, **_: Any) -> "Future[Any]":  # type: ignore[override]
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        self.bytes += len(arguments[0]) + len(future.result())
        return future


def play_nothing(task: bytes, attachments: Mapping[str, Any]) -> bytes:
    """The reply to a task of one episode, of which a generation has no larger with so many workers."""
    return pickle.dumps(("done", pickle.dumps([EpisodeResult(1000, 812.3456789, 1000, 4000, False, True)])))


def generation_bytes() -> tuple[int, int]:
    """Tasks of a generation, and the bytes of them and their replies."""
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, name) for name in ("vae", "mdnrnn")]
        for folder in folders:
            folder.mkdir()
            manifest.write(folder, {"kind": folder.name})
        spec = PolicySpec(EnvConfig("CarRacing"), *folders, ControllerConfig("clip"), "f" * 128)
        candidates = np.random.default_rng(0).normal(size=(CANDIDATES, PARAMETERS)).astype(np.float32)
        total = CANDIDATES * EPISODES_EACH
        # Any seeds of 32 bits: they only have to be as long as real ones.
        jobs = [EpisodeJob(key, 3_000_000_000 + key, key // EPISODES_EACH) for key in range(total)]
        executor = Simulated()
        workers = ExecutorWorkers(executor, play_nothing, {}, lambda: WORKERS, nothing, time.monotonic)
        tasks = play_tasks(workers, spec, candidates, jobs, 1, 0, 0)
        list(workers.map(play_jobs, tasks))
        return len(tasks), executor.bytes


def overhead(workers: Workers, sent: Callable[[], int]) -> float:
    """Bytes of Dask's messages for a task, its payload included, which is 100 bytes."""
    list(workers.map(abs, [(0,)] * PROCESSES))
    before = sent()
    list(workers.map(abs, [(0,)] * EMPTY_TASKS))
    return (sent() - before) / EMPTY_TASKS


_new_places = lru_cache(maxsize=1)(new_places)


def play_slots(parameters: NDArray[np.float32], steps: int) -> tuple[float, float, Played]:
    """A task of PPO: steps in eight slots of Pong. Also the seconds that they took, and those of the CPU. Runs in a
    worker."""
    places: list[Place] = _new_places()
    began, cpu = time.monotonic(), time.process_time()
    played = play(small_vae(), small_controller(), parameters, places, steps)
    return time.monotonic() - began, time.process_time() - cpu, played


def trip(workers: Workers, steps: int = STEPS) -> tuple[float, float]:
    """Milliseconds of a task of PPO besides its play, and of its play on an idle core; at best."""
    parameters = ActorCritic(small_controller(), 0).parameter_vector()
    trips = []
    for _ in range(TRIPS):
        began = time.monotonic()
        ((_, (took, cpu, _)),) = workers.map(play_slots, [(parameters, steps)])
        trips.append((1000 * (time.monotonic() - began - took), 1000 * cpu))
    return min(overhead_ms for overhead_ms, _ in trips), min(cpu for _, cpu in trips)


@contextmanager
def one_worker(late: float) -> Iterator[Workers]:
    """That of a Dask cluster, whose scheduler is so many milliseconds away from the client, either way."""
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        counted(cluster.scheduler_address, late / 1000) as (address, _),
        open_workers(Runtime(time.monotonic, executor=f"dask:{address}")) as workers,
    ):
        yield workers


def main() -> None:
    if not extras.is_installed("cluster"):
        print("the extra cluster is not installed; the benchmark is left out", file=sys.stderr)
        return
    from distributed import LocalCluster

    collection, _ = describe(EnvConfig("Pong"), "random", seed=0, max_steps=0)

    def rows(workers: Workers) -> Callable[[], int]:
        tasks = [(collection, index) for index in range(EPISODES)]
        return lambda: sum(episode.rows for _, episode in workers.map(play_episode, tasks))

    with (
        LocalCluster(n_workers=PROCESSES, threads_per_worker=1, dashboard_address=":0") as cluster,
        counted(cluster.scheduler_address) as (address, sent),
        open_workers(Runtime(time.monotonic, executor=f"dask:{address}")) as theirs,
        ProcessWorkers(PROCESSES, nothing, time.monotonic) as own,
    ):
        each = overhead(theirs, sent)
        local, remote, ratio = rates(rows(own), rows(theirs), seconds=1.0, windows=5)
    # Dask may take a fifth longer than own processes: it took 1.16 times as long (decision 0024).
    report("cluster_collect_pong", remote, local, 1.2, "steps/s, as times", ratio, lower_is_better=True)
    with one_worker(LATE) as away:
        overhead_ms, playing_ms = trip(away)
    report(f"cluster_ppo_{LATE}_ms_away", round(overhead_ms, 1), round(playing_ms, 1), 0.5, "ms", lower_is_better=True)
    tasks, payload = generation_bytes()
    total = round((payload + tasks * each + IDENTITY_BYTES * WORKERS * GENERATION_SECONDS) / 1e6, 2)
    report("cluster_generation_1000_workers", total, 10.0, 1.0, "MB", lower_is_better=True)


if __name__ == "__main__":
    main()
