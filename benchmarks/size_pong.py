"""Disk size of 50 random Pong episodes, all columns, against np.savez_compressed of the same frames alone."""

import io
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import report
from stages.collect import collect
from stages.session import Session
from wm.artifacts.durable import folder_size
from wm.episodes.dataset import Dataset
from wm.settings import CollectSettings


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Pong.zarr"
        collect(Session("Pong", data=path), CollectSettings(episodes=50, policy="random"))
        ours = folder_size(path)
        dataset = Dataset.open(path)
        reference = 0
        for part in dataset.parts:
            for episode in dataset.episodes_of(part):
                buffer = io.BytesIO()
                np.savez_compressed(buffer, frames=episode.frames)
                reference += buffer.tell()
    report("size_pong", ours / 1e6, reference / 1e6, 0.6, "MB", lower_is_better=True)


if __name__ == "__main__":
    main()
