"""Peak memory of streaming a dataset ten times the RAM budget for three epochs, against budget + 300 MB."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import report
from wm.episodes.schema import Episode
from wm.episodes.writer import Writer, create

# Small, so that a dataset of ten times as much is written in seconds.
BUDGET = 100_000_000
READ = """
import resource, sys
from pathlib import Path
import numpy as np
from wm.episodes.frame_batches import FrameBatches
from wm.episodes.dataset import Dataset
dataset = Dataset.open(Path(sys.argv[1]))
source = FrameBatches(dataset, np.ones(dataset.episodes, bool), 64, 0, ram=int(sys.argv[2]))
assert not source.in_memory
for step in range(3 * (dataset.rows // 64)):
    source.at(step)
print(dataset.rows * int(np.prod(dataset.frame_shape)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def main() -> None:
    recipe = {
        "env": {"name": "Pong", "size": 64, "gray": False, "action_space": "auto", "render": "exact"},
        "action_space": {"count": 6, "low": [], "high": []},
        "labels": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        path, random = Path(folder) / "d.zarr", np.random.default_rng(0)
        rows = 1000
        with Writer(create(path, recipe)) as writer:
            for index in range(10 * BUDGET // (rows * 64 * 64 * 3) + 1):
                # Eight values a channel: frames that compress as flat colours do.
                frames = random.integers(0, 8, (rows, 64, 64, 3), np.uint8)
                zeros = np.zeros(rows, np.int32), np.zeros(rows, np.float32), np.zeros((rows, 0), np.float32)
                writer.add(Episode(index, index, frames, *zeros, True, False).pack())
        done = subprocess.run(
            [sys.executable, "-c", READ, path, str(BUDGET)], capture_output=True, text=True, check=True
        )
    decoded, peak = map(int, done.stdout.split())
    assert decoded >= 10 * BUDGET
    report("ram_streaming", round(peak / 1e6, 1), BUDGET / 1e6 + 300, 1.0, "MB", lower_is_better=True)


if __name__ == "__main__":
    main()
