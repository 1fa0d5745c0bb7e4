"""Collecting with two workers against one: steps per second of `wm collect`, starting the workers not counted."""

import statistics
import time

from benchmarks.measure import report
from stages.session import Session
from wm.envs.registry import EnvConfig
from wm.rollouts.collection import describe, play_episode
from wm.rollouts.workers import open_workers

# Twelve for each of two workers, so that none idles for long at the end.
EPISODES = 24


def speed(env: str, workers: int) -> float:
    collection, _ = describe(EnvConfig(env), "random", seed=0, max_steps=0)
    with open_workers(Session(env, workers=workers).runtime) as pool:
        list(pool.map(play_episode, [(collection, index) for index in range(2 * workers)]))
        began = time.perf_counter()
        rows = sum(episode.rows for _, episode in pool.map(play_episode, [(collection, k) for k in range(EPISODES)]))
        return rows / (time.perf_counter() - began)


def main() -> None:
    for env in ("Pong", "CarRacing"):
        pairs = [(speed(env, 2), speed(env, 1)) for _ in range(3)]
        ours, reference = (round(statistics.median(column), 1) for column in zip(*pairs, strict=True))
        ratio = round(statistics.median(two / one for two, one in pairs), 3)
        report(f"workers_{env.lower()}", ours, reference, 1.8, "steps/s", ratio)


if __name__ == "__main__":
    main()
