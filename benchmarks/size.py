"""Bytes on disk: 50 random Pong episodes, all columns, against np.savez_compressed of the same frames alone; and bytes
per frame of random play in four environments, against the limits set for them."""

import io

import numpy as np

from benchmarks.datasets import dataset
from benchmarks.measure import report
from wm.artifacts.durable import folder_size

# Episodes, and the bytes a frame that each environment was to have at most.
LIMITS = {"Pong": (50, 64), "Breakout": (100, 50), "LunarLander": (200, 170), "CarRacing": (20, 650)}


def main() -> None:
    pong, reference = dataset("Pong", 50), 0
    for part in pong.parts:
        for episode in pong.episodes_of(part):
            buffer = io.BytesIO()
            np.savez_compressed(buffer, frames=episode.frames)
            reference += buffer.tell()
    report("size_pong", folder_size(pong.path) / 1e6, reference / 1e6, 0.6, "MB", lower_is_better=True)
    for env, (episodes, limit) in LIMITS.items():
        data = dataset(env, episodes)
        each = round(folder_size(data.path) / data.rows, 1)
        report(f"bytes_{env.lower()}", each, limit, 1.0, "bytes/frame", lower_is_better=True)


if __name__ == "__main__":
    main()
