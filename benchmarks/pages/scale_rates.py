"""Measures docs/results/scale.json, the rows of docs/scale.md that are on no other page.

    python -m benchmarks.pages.scale_rates             measures all rows
    python -m benchmarks.pages.scale_rates task head   measures these, and leaves the others

Computing is measured in CPU time; beside other programs that is longer too. Needs the extra `cluster`.
"""

import json
import math
import pickle
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cluster import LATE, generation_bytes, one_worker, trip
from benchmarks.rollouts import lockstep
from wm.envs.registry import EnvConfig
from wm.episodes.schema import BLOCK_EPISODES, PART_ROWS, PackedEpisode
from wm.episodes.staged_parts import open_place, write_block
from wm.episodes.writer import Writer, create
from wm.models.mdnrnn.network import MdnRnn
from wm.models.vae.networks import build
from wm.rollouts.collection import describe, play_episode
from wm.rollouts.workers import open_workers
from wm.runtime import Runtime

RATES = Path(__file__).resolve().parents[2] / "docs" / "results" / "scale.json"
# Episodes enough for a mean: Pong's differ, CarRacing's are all of 1,000 steps.
EPISODES = {"Pong": 24, "CarRacing": 2}
SHORT, LONG = 40, 160  # steps of the same episodes: the difference has no resets
# NUM_ENVS of wm/rollouts/players.py.
SLOTS = 8
# Enough that the start of a connection does not count.
TASKS = 200
WATCH_SECONDS = 0.5  # between two readings of memory
# Blocks of which the fastest counts, for the disk has other work.
BLOCKS = 4


@cache
def played(env: str, episodes: int = 0) -> tuple[dict[str, Any], list[PackedEpisode]]:
    """The recipe and the first episodes of random play."""
    collection, recipe = describe(EnvConfig(env), "random", seed=0, max_steps=0)
    return recipe, [play_episode(collection, index) for index in range(episodes or EPISODES[env])]


def episode_rows(env: str) -> float:
    """On average."""
    return statistics.mean(episode.rows for episode in played(env)[1])


def packed_bytes(env: str) -> float:
    """Of a frame, with what else is sent of its episode."""
    episodes = played(env)[1]
    return sum(len(pickle.dumps(episode)) for episode in episodes) / sum(episode.rows for episode in episodes)


@cache
def step_milliseconds(slots: int) -> float:
    """CPU time of a step of this many CarRacing episodes in lockstep."""
    times = []
    for length in (SHORT, LONG):
        play, began = lockstep("CarRacing", slots, steps=length), time.process_time()
        steps = play() / slots
        times.append((time.process_time() - began, steps))
    (short, few), (long, many) = times
    return 1000 * (long - short) / (many - few)


def act() -> int:
    """In a worker: play CarRacing for a while, as a search does."""
    return lockstep("CarRacing", SLOTS, steps=20)()


@cache
def on_cluster() -> tuple[float, float]:
    """CPU milliseconds of client and scheduler for a task, and bytes of a worker's processes."""
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        open_workers(Runtime(executor=f"dask:{cluster.scheduler_address}")) as workers,
    ):
        list(workers.map(act, [()]))
        worker = psutil.Process(cluster.workers[0].pid)
        memory = worker_bytes(worker)
        began = time.process_time()
        list(workers.map(abs, [(0,)] * TASKS))
        return 1000 * (time.process_time() - began) / TASKS, memory


def collector_bytes() -> float:
    """The most memory of a Dask worker's processes while they play CarRacing and write a part of it."""
    from distributed import LocalCluster

    collection, recipe = describe(EnvConfig("CarRacing"), "random", seed=0, max_steps=0)
    readings, done = [], threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        open_workers(Runtime(executor=f"dask:{cluster.scheduler_address}")) as workers,
    ):
        worker = psutil.Process(cluster.workers[0].pid)

        def watch() -> None:
            while not done.wait(WATCH_SECONDS):
                with suppress(psutil.NoSuchProcess):  # one ended meanwhile
                    readings.append(worker_bytes(worker))

        watcher = threading.Thread(target=watch)
        watcher.start()
        create(path := Path(folder, "d.zarr"), recipe)
        with open_place(path) as place:
            task = partial(play_episode, collection), place, recipe, 0, math.ceil(PART_ROWS / 1000)
            list(workers.map(write_block, [task]))
        done.set()
        watcher.join()
    return max(readings)


def worker_bytes(worker: psutil.Process) -> int:
    """The memory of a worker's processes."""
    return sum(process.memory_full_info().pss for process in [worker, *worker.children(recursive=True)])


def again(episodes: list[PackedEpisode], index: int) -> PackedEpisode:
    """One of the episodes, as episode `index`."""
    return replace(episodes[index % len(episodes)], index=index)


@cache
def committed() -> tuple[float, float]:
    """Milliseconds to commit a part of Pong that a worker has written, at best, and the bytes that are sent of it."""
    recipe, episodes = played("Pong", 2)
    milliseconds, sizes = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "d.zarr")
        with Writer(create(path, recipe)) as writer, open_place(path) as place:
            for first in range(0, BLOCKS * BLOCK_EPISODES, BLOCK_EPISODES):
                for part in write_block(partial(again, episodes), place, recipe, first, first + BLOCK_EPISODES):
                    began = time.perf_counter()
                    writer.take(part)
                    milliseconds.append(1000 * (time.perf_counter() - began))
                    sizes.append(sum(map(len, part.head.values())))
    return min(milliseconds), statistics.mean(sizes)


def task_bytes() -> float:
    """Of a task of a generation, and of its reply."""
    tasks, total = generation_bytes()
    return total / tasks


@cache
def ppo_trip(late: float) -> tuple[float, float]:
    """Milliseconds of a task of PPO besides its play, and of its play, with a scheduler so many milliseconds away."""
    with one_worker(late) as workers:
        return trip(workers)


def numbers(model: Any) -> float:
    """How many parameters a model has."""
    return sum(parameter.numel() for parameter in model.parameters())


# By name: the unit, what it is of, decimals (negative: zeros at the end), and how it is measured.
ROWS: dict[str, tuple[str, str, int, Callable[[], float]]] = {
    "episode_pong": ("rows", "a random Pong episode, on average", 0, lambda: episode_rows("Pong")),
    "episode_carracing": ("rows", "a random CarRacing episode", 0, lambda: episode_rows("CarRacing")),
    "packed_pong": (
        "bytes a frame", "a Pong episode on its way to the process that writes", 0, lambda: packed_bytes("Pong")
    ),
    "packed_carracing": (
        "bytes a frame", "a CarRacing episode on its way to the process that writes", 0,
        lambda: packed_bytes("CarRacing"),
    ),
    "lockstep": (
        "ms", "a step of CarRacing episodes in one process, V, M and C included: the part that they share", 2,
        lambda: (SLOTS * step_milliseconds(1) - step_milliseconds(SLOTS)) / (SLOTS - 1),
    ),
    "lockstep_episode": (
        "ms", "the same: the part of each episode", 2,
        lambda: (step_milliseconds(SLOTS) - step_milliseconds(1)) / (SLOTS - 1),
    ),
    "task": ("ms", "the CPU time of client and scheduler for a task of Dask", 1, lambda: on_cluster()[0]),
    "task_bytes": (
        "bytes", "a task sent to a worker, with the 867 parameters of its candidate, and its reply", -2, task_bytes
    ),
    "ppo_play": ("ms", "CPU time of PPO's task of 256 steps in eight slots of Pong", -1, lambda: ppo_trip(0)[1]),
    "ppo_trip": (
        "ms", "what such a task takes besides on a busy machine, at best; scheduler and worker are there too", -1,
        lambda: ppo_trip(0)[0],
    ),
    "ppo_trip_away": (
        "ms", f"the same, with {LATE} ms from the client to the scheduler and {LATE} ms back", -1,
        lambda: ppo_trip(LATE)[0],
    ),
    "worker": (
        "MB", "memory of a worker of Dask that acts with V, M and C: all of its processes", 0,
        lambda: on_cluster()[1] / 1e6,
    ),
    "collector": (
        "MB", "the same of one that plays CarRacing and writes parts", 0, lambda: collector_bytes() / 1e6
    ),
    "commit": ("ms", "the client's time to commit a part from a worker, on a busy disk", 1, lambda: committed()[0]),
    "head": ("bytes", "what the client is sent of such a part: its table and its manifest", -2, lambda: committed()[1]),
    "vae_parameters": ("numbers", "the default V", 0, lambda: numbers(build("small", 64, 3, 32))),
    "mdnrnn_parameters": (
        "numbers", "the default M, 32 latents and three actions", 0, lambda: numbers(MdnRnn(32, 3, 256, 5, 10.0))
    ),
}  # fmt: skip


def main(names: list[str]) -> None:
    """Measure these rows, or all, and write them."""
    if unknown := set(names) - set(ROWS):
        sys.exit(f"there is no row {', '.join(sorted(unknown))}; expected some of {', '.join(ROWS)}.")
    values = {row["name"]: row["value"] for row in json.loads(RATES.read_text())}
    for name, (_, _, decimals, measure) in ROWS.items():
        if not names or name in names:
            value = round(measure(), decimals)
            values[name] = value if decimals > 0 else int(value)
            print(name, values[name], file=sys.stderr, flush=True)
    rows = [
        json.dumps({"name": name, "value": values[name], "unit": unit, "what": what})
        for name, (unit, what, *_) in ROWS.items()
        if name in values
    ]
    RATES.write_text("[\n " + ",\n ".join(rows) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1:])
