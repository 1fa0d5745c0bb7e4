"""Opening a dataset of 10,000 episodes in a fresh process: time and memory it adds, against the limits of 50."""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import report
from wm.episodes.schema import Episode
from wm.episodes.writer import Writer, create

# 200 rows: the time depends on the number of parts and episodes alone.
EPISODES, ROWS = 10_000, 200
OPEN = """
import resource, sys, time
from pathlib import Path
from wm.episodes.dataset import Dataset
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.perf_counter()
dataset = Dataset.open(Path(sys.argv[1]))
assert dataset.episodes == 10_000 and dataset.rows == 2_000_000
print(1e3 * (time.perf_counter() - began), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3)
"""


def main() -> None:
    recipe = {
        "env": {"name": "Pong", "size": 32, "gray": True, "action_space": "auto", "render": "exact"},
        "action_space": {"count": 6, "low": [], "high": []},
        "labels": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d.zarr"
        frames = np.zeros((ROWS, 32, 32, 1), np.uint8)
        actions, rewards, labels = np.zeros(ROWS, np.int32), np.zeros(ROWS, np.float32), np.zeros((ROWS, 0), np.float32)
        with Writer(create(path, recipe)) as writer:
            for index in range(EPISODES):
                # Any seeds that differ.
                writer.add(Episode(index, index * 7919, frames, actions, rewards, labels, True, False).pack())
        runs = []
        for _ in range(8):
            runs.append(subprocess.run([sys.executable, "-c", OPEN, path], capture_output=True, text=True, check=True))
        # The first builds the index.
        times, sizes = zip(*(map(float, run.stdout.split()) for run in runs[1:]), strict=True)
    report("open_10k", round(statistics.median(times), 1), 50.0, 1.0, "ms", lower_is_better=True)
    report("open_10k_memory", round(max(sizes), 1), 50.0, 1.0, "MB", lower_is_better=True)


if __name__ == "__main__":
    main()
