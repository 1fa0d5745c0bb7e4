"""Draws docs/images/dreamer-memory.png from docs/results/dreamer_memory.json: a Dreamer's memory over 80,000 steps of
Pong, and that of an ancestor whose memory grew until it died.

`python -m benchmarks.pages.dreamer_memory add runs/Pong/dreamer` stores the readings of a training; without arguments
it only draws. The stored readings were taken at commit 81990f9 with the ancestor's data path (84x84, four stacked
frames, two environments, a replay of 50,000 steps) and few updates, so that a CPU finishes it. Up to commit 1423c42:

    wm train-dreamer --env Pong --preset seed --steps 80000 --train-ratio 2 --set decoded=0.1 --set starts=2 \\
        --set units=64 --set log_every=100

Later commits have neither that preset nor stacked frames. They measure the same claim, that memory is flat once the
replay is full, with 64x64 frames:

    wm train-dreamer --env Pong --steps 80000 --capacity 50000 --train-ratio 2 --set decoded_share=0.1 \\
        --set imagine_last=2 --set units=64
"""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

from wm.report.plots import figure_png

ROOT = Path(__file__).resolve().parents[2]
READINGS, FIGURE = ROOT / "docs" / "results" / "dreamer_memory.json", ROOT / "docs" / "images" / "dreamer-memory.png"
# Published for the ancestor: the CUDA allocator's small pool (GB) over 44,000 steps, and the step it died at.
LEAK, DIED = ((0, 0.39), (44_000, 9.31)), 53_800
# A point every 2,000 steps, which the figure can show.
READING_COUNT = 40


def add(run: Path) -> None:
    """Keep about `READING_COUNT` of the readings that followed a malloc_trim."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trimmed = [line for line in lines if line.get("trimmed")]
    trimmed = trimmed[:: max(len(trimmed) // READING_COUNT, 1)]
    names = ("step", "replay", "rss_anon_mb", "buffers_mb", "unexplained_mb")
    READINGS.write_text(json.dumps([{name: line[name] for name in names} for line in trimmed], indent=0) + "\n")


def draw() -> None:
    """Draw both trainings in one panel, and the stored one alone in another."""
    readings = json.loads(READINGS.read_text())
    steps = [reading["step"] / 1000 for reading in readings]
    full = next(reading for reading in readings if reading["replay"] == readings[-1]["replay"])
    figure = Figure(figsize=(9, 3.4), dpi=100, layout="constrained")
    both, alone = figure.subplots(1, 2)
    both.plot([step / 1000 for step, _ in LEAK], [size for _, size in LEAK], color="tab:red", label="ancestor")
    both.axvline(DIED / 1000, color="tab:red", linestyle=":", linewidth=1, label="ancestor dies")
    both.plot(steps, [reading["rss_anon_mb"] / 1000 for reading in readings], color="tab:purple", label="RssAnon")
    both.set_ylabel("GB")
    growth = [reading["rss_anon_mb"] - full["rss_anon_mb"] for reading in readings]
    alone.plot(steps, growth, color="tab:purple", label="RssAnon")
    # The band of 8.4 MB within which nothing is a rise (MIN_DRIFT in wm/telemetry/trend.py).
    alone.set_ylim(-8.4, 8.4)
    alone.set_ylabel("MB since the replay was full")
    for axes in (both, alone):
        axes.axvline(full["step"] / 1000, color="gray", linestyle="--", linewidth=1, label="replay full")
        axes.set_xlabel("environment steps (thousands)")
        axes.legend(fontsize="small")
    FIGURE.write_bytes(figure_png(figure))


if __name__ == "__main__":
    if sys.argv[1:2] == ["add"]:
        add(Path(sys.argv[2]))
    draw()
