"""Memory of `wm train-vae` with the quick preset over 20,000 steps (a quarter of an hour on one core): the largest RSS
against 1.2 GB, and the slope of anonymous memory after the first 2,000 steps against 1 MB per 1,000 steps."""

import resource
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.datasets import dataset
from benchmarks.measure import report
from stages.options import read_sources
from stages.session import Session
from stages.train_vae import train_vae
from wm.settings import VaeSettings
from wm.telemetry import metrics_log

# In the first 2,000 steps buffers fill and malloc's holes form.
STEPS, WARM_UP = 20_000, 2_000


def main() -> None:
    episodes = dataset("Pong", 16, "sticky")
    settings, _ = read_sources("quick").resolve("train-vae", VaeSettings, "Pong")
    settings = replace(settings, steps=STEPS, validate_every=2000, patience=0)
    run = Path(episodes.path).parent / "memory"
    result = train_vae(Session("Pong", data=(episodes.path,), run=run, device="cpu"), settings)
    lines = [line for line in metrics_log.read(result.path) if line["step"] > WARM_UP]
    steps, memory = (np.array([line[name] for line in lines]) for name in ("step", "rss_anon_mb"))
    first, second = np.triu_indices(len(steps), 1)
    # Pairs a tenth of the training apart; nearer ones show noise.
    distant = steps[second] - steps[first] >= STEPS // 10
    slope = float(np.median(((memory[second] - memory[first]) / (steps[second] - steps[first]))[distant])) * 1000
    # Linux counts in kilobytes, macOS in bytes.
    unit = 1024 if sys.platform != "darwin" else 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    report("memory_vae", round(peak), 1200, 1.0, "MB", lower_is_better=True)
    report("memory_vae_slope", round(slope, 4), 1.0, 1.0, "MB/1,000 steps", lower_is_better=True)


if __name__ == "__main__":
    main()
