"""Keeps docs/results/memory.json, the memory of the run that once died, and draws docs/images/memory.png from it.

`python -m benchmarks.pages.memory add runs/Pong/dreamer` takes the readings of a training; without arguments it only
draws. The run is `wm train-dreamer --env Pong --preset seed --steps 80000 --train-ratio 2 --set decoded=0.1
--set starts=2 --set units=64 --set log_every=100`: the data path of the configuration that leaked
(84x84, four frames stacked, two environments, a replay of 50,000 steps), with few updates, so that a CPU finishes it.
"""

import json
import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
KEPT, PICTURE = ROOT / "docs" / "results" / "memory.json", ROOT / "docs" / "images" / "memory.png"
# What was published of the run that died: the CUDA allocator's small pool over 44,000 steps, and the end.
LEAKED, DIED = ((0, 0.39), (44_000, 9.31)), 53_800


def add(run: Path) -> None:
    """Keep every fourth reading that was taken after malloc gave back what was free."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trimmed = [line for line in lines if line.get("trimmed")][::4]
    names = ("step", "replay", "rss_anon_mb", "buffers_mb", "unexplained_mb")
    KEPT.write_text(json.dumps([{name: line[name] for name in names} for line in trimmed], indent=0) + "\n")


def draw() -> None:
    """Both runs in one plot, and ours alone, magnified."""
    ours = json.loads(KEPT.read_text())
    steps = [line["step"] / 1000 for line in ours]
    full = next(line["step"] / 1000 for line in ours if line["replay"] == ours[-1]["replay"])
    figure = Figure(figsize=(9, 3.4), dpi=100, layout="constrained")
    both, near = figure.subplots(1, 2)
    both.plot(
        *zip(*((step / 1000, size) for step, size in LEAKED), strict=True), color="tab:red", label="the one that died"
    )
    both.axvline(DIED / 1000, color="tab:red", linestyle=":", linewidth=1)
    both.plot(steps, [line["rss_anon_mb"] / 1000 for line in ours], color="tab:purple", label="ours, all memory")
    both.set_ylabel("GB")
    at = next(line["rss_anon_mb"] for line in ours if line["replay"] == ours[-1]["replay"])
    near.plot(steps, [line["rss_anon_mb"] - at for line in ours], color="tab:purple", label="ours, all memory")
    near.set_ylim(-8.4, 8.4)
    near.set_ylabel("MB more than when the replay was full")
    for axes in (both, near):
        axes.axvline(full, color="gray", linestyle="--", linewidth=1, label="the replay is full")
        axes.set_xlabel("environment steps (thousands)")
        axes.legend(fontsize="small")
    FigureCanvasAgg(figure).print_png(str(PICTURE))


if __name__ == "__main__":
    if sys.argv[1:2] == ["add"]:
        add(Path(sys.argv[2]))
    draw()
