"""Renders docs/results/speed.md and README's rows from benchmarks/results.jsonl: `python -m benchmarks.pages.speed`."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import markdown_table, replaced

ROOT = Path(__file__).resolve().parents[2]
README, PAGE, BENCHMARKS = (
    ROOT / "README.md",
    ROOT / "docs" / "results" / "speed.md",
    ROOT / "benchmarks" / "results.jsonl",
)
README_ROWS = (
    "collect_pong",
    "collect_carracing_exact",
    "size_pong",
    "train_vae_bf16",
    "dream_bf16",
    "rollouts_pong_paper",
)
MEASURED = {
    "collect_pong": ("collect Pong, to disk", "the emulator alone, no frames"),
    "collect_breakout": ("collect Breakout, to disk", "the emulator alone, no frames"),
    "collect_carracing_exact": ("collect CarRacing, identical pixels", "gymnasium's step alone"),
    "collect_carracing_fast": ("collect CarRacing, `--render fast`", "gymnasium's step alone"),
    "collect_lunarlander_exact": ("collect LunarLander, identical pixels", "gymnasium's rgb_array and our resize"),
    "collect_lunarlander_fast": ("collect LunarLander, `--render fast`", "gymnasium's rgb_array and our resize"),
    "collect_cartpole_exact": ("collect CartPole", "gymnasium's rgb_array and our resize"),
    "collect_acrobot_exact": ("collect Acrobot", "gymnasium's rgb_array and our resize"),
    "workers_pong": ("two workers on Pong", "one worker"),
    "workers_carracing": ("two workers on CarRacing", "one worker"),
    "write_share_pong": ("share of collecting Pong spent writing", "the whole time"),
    "write_share_breakout": ("share of collecting Breakout spent writing", "the whole time"),
    "write_share_carracing_exact": ("share of collecting CarRacing spent writing", "the whole time"),
    "write_share_carracing_fast": ("share of collecting CarRacing spent writing, `--render fast`", "the whole time"),
    "write_share_lunarlander_exact": ("share of collecting LunarLander spent writing", "the whole time"),
    "write_share_lunarlander_fast": (
        "share of collecting LunarLander spent writing, `--render fast`",
        "the whole time",
    ),
    "write_share_cartpole_exact": ("share of collecting CartPole spent writing", "the whole time"),
    "write_share_acrobot_exact": ("share of collecting Acrobot spent writing", "the whole time"),
    "cluster_collect_pong": (
        "time of collecting Pong by two processes of a Dask cluster",
        "by two processes without it",
    ),
    "cluster_ppo_20_ms_away": ("a task of PPO on a worker 20 ms away, besides playing", "its 128 steps of play"),
    "cluster_generation_1000_workers": ("sent for a generation of 64 candidates, 1,000 workers", "the limit"),
    "size_pong": ("50 random Pong episodes, all columns", "np.savez_compressed of the frames"),
    "bytes_pong": ("Pong on disk", "the limit"),
    "bytes_breakout": ("Breakout on disk", "the limit"),
    "bytes_lunarlander": ("LunarLander on disk", "the limit"),
    "bytes_carracing": ("CarRacing on disk", "the limit"),
    "stream_pong": ("shuffled Pong batches from disk", "the same loop over an array in RAM"),
    "stream_carracing": ("shuffled CarRacing batches from disk", "the same loop over an array in RAM"),
    "window_32": ("random windows of 32 frames", "zarr-python, the same files"),
    "window_50": ("random windows of 50 frames", "zarr-python, the same files"),
    "open_10k": ("open a dataset of 10,000 episodes", "the limit"),
    "ram_streaming": ("peak memory, streaming ten times the budget", "budget + 300 MB"),
    "train_vae_fp32": ("train V, the paper's network, fp32, from disk", "a plain loop, frames in RAM, fp32, batch 32"),
    "train_vae_bf16": ("train V, the paper's network, bf16, from disk", "the same plain loop"),
    "train_vae_small": ("train V, default network and loss, bf16, from disk", "the same plain loop"),
    "train_vae_stream": ("train V from disk", "the same training from RAM"),
    "encode": ("encode frames to latents", "the paper's encoder, frames in RAM, batch 64"),
    "encode_pong": ("encode 50 Pong episodes", "the limit"),
    "train_mdnrnn_fp32": ("train M on latents, fp32", "nn.LSTM, batch 16, length 32, RMSprop, fp32"),
    "train_mdnrnn_bf16": ("train M on latents, bf16", "the same plain loop"),
    "train_rollout_fp32": ("train M on its own rollouts, fp32", "the same network and loss, written plainly"),
    "train_rollout_bf16": ("train M on its own rollouts, bf16", "the same plain loop"),
    "cpu_threads_vae": ("train V on two cores, a share of the rows a thread", "the same steps by torch's threads"),
    "cpu_threads_vae_busy": ("train V on two cores, one of them busy", "the same steps by torch's threads"),
    "cpu_threads_rollout": (
        "train M on its own rollouts on two cores, a share of the rows a thread",
        "the same steps by torch's threads",
    ),
    "cpu_threads_rollout_busy": (
        "train M on its own rollouts on two cores, one of them busy",
        "the same steps by torch's threads",
    ),
    "cpu_threads_mdnrnn": (
        "train the paper's M on two cores, a share of the rows a thread",
        "the same steps by torch's threads",
    ),
    "cpu_threads_mdnrnn_busy": (
        "train the paper's M on two cores, one of them busy",
        "the same steps by torch's threads",
    ),
    "cuda_graph_rollout": ("train M on its own rollouts on an H200, a CUDA graph", "the same steps without a graph"),
    "cuda_graph_mdnrnn": ("train the paper's M on an H200, a CUDA graph", "the same steps without a graph"),
    "cuda_graph_vae": ("train V on an H200, a CUDA graph", "the same steps without a graph"),
    "cuda_graph_vae_paper": ("train the paper's V on an H200, a CUDA graph", "the same steps without a graph"),
    "cuda_graph_dreamer_small": (
        "update the small Dreamer on an H200, a CUDA graph",
        "the same updates without a graph",
    ),
    "cuda_graph_dreamer_base": ("update the base Dreamer on an H200, a CUDA graph", "the same updates without a graph"),
    "dream_fp32": ("256 dreams at once, fp32", "the same cell with Categorical"),
    "dream_bf16": ("256 dreams at once, bf16", "the same cell with Categorical"),
    "dream_rate": ("256 dreams at once, bf16", "the required rate"),
    "dream_products": ("the two matrix products alone", "the required rate"),
    "rollouts_pong": ("act in Pong with V, M and C", "the same models, one environment at a time"),
    "rollouts_pong_paper": ("act in Pong with V, M and C", "the paper's V, one environment at a time"),
    "rollouts_carracing_exact": ("act in CarRacing, identical pixels", "gymnasium, one at a time, encoder and decoder"),
    "rollouts_carracing_fast": ("act in CarRacing, `render=fast`", "gymnasium, one at a time, encoder and decoder"),
    "ppo_pong_emulator": ("train C by PPO on Pong, one core", "the emulator alone, no frames"),
    "ppo_pong_sb3": ("train C by PPO on Pong, one core", "stable-baselines3's PPO on the same latents"),
    "ppo_dream_rate": ("train C by PPO in 512 dreams, one core", "the required rate"),
    "ppo_dream_sb3": ("train C by PPO in 512 dreams, one core", "stable-baselines3's PPO in the same dreams"),
    "rollouts_workers": ("act in Pong, two processes", "one process"),
    "worker_start": ("start two more workers", "two spawned processes"),
    "dream_generation": ("64 candidates in 4 dreams of 1,000 steps", "one dream at a time"),
    "dream_generation_time": ("64 candidates in 4 dreams of 1,000 steps", "the limit"),
    "cma_cost_dream": ("CMA-ES' share of that generation", "the limit"),
    "cma_cost_real": ("CMA-ES' share of a generation of Pong", "the limit"),
    "dreamer_step": ("a Dreamer's gradient step, 6.6 M parameters, fp32", "sheeprl 0.8.4, the same sizes, fp32"),
    "play_small": ("play in a dream in Chromium, the laptop preset's networks", "the required rate"),
    "play_paper": ("play in a dream in Chromium, the paper's networks", "the required rate"),
    "memory_vae": ("largest RSS of training V, quick preset", "the limit"),
    "memory_vae_slope": ("growth of RssAnon over 20,000 training steps", "the limit"),
    "curriculum_estimate_disk": ("`--dry-run` of the quick curriculum: disk", "measured, worst of four environments"),
    "curriculum_estimate_memory": ("`--dry-run` of the quick curriculum: memory", "measured, worst of 24 stages"),
    "curriculum_estimate_seconds": ("`--dry-run` of the quick curriculum: time", "measured, worst of 12 stages"),
}


def rows(lines: list[dict[str, Any]], names: Iterable[str]) -> str:
    """Markdown: ours and the reference, measured in the same run."""
    by_name = {line["name"]: line for line in lines}
    cells = []
    for name in names:
        line, (subject, reference) = by_name[name], MEASURED[name]
        goal = f"{'≤' if line.get('lower_is_better') else '≥'} {line['goal']}"
        ours = f"{_figure(line['ours'])} {line['unit']}"
        cells.append([subject, ours, reference, _figure(line["reference"]), f"{line['ratio']:.2f}", goal])
    return markdown_table(["", "ours", "reference", "", "ratio", "goal"], cells)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def page(lines: list[dict[str, Any]]) -> str:
    """Markdown, with a row for each that was measured."""
    measured = {line["name"] for line in lines}
    names = [name for name in MEASURED if name in measured]
    return "\n".join([_HEAD, rows(lines, names), "## Goals that are missed\n", missed(lines) + _NOTES])


def missed(lines: list[dict[str, Any]]) -> str:
    """Markdown: a list of the rows that miss their goal."""
    items = []
    for line in lines:
        ratio, goal, lower = line["ratio"], line["goal"], line.get("lower_is_better", False)
        if line["name"] in MEASURED and (ratio > goal if lower else ratio < goal):
            items.append(f"- {MEASURED[line['name']][0]}: {ratio:.2f}, where {goal} is the goal.\n")
    return "".join(items) or "None.\n"


_HEAD = """<!-- Rendered by `python -m benchmarks.pages.speed`; do not edit. -->

# Speed and size

Medians on one core of two, unless a row says otherwise; rows with workers use both cores. `make bench` measures ours
and the reference in one run and writes benchmarks/results.jsonl, from which this page is rendered.

The rows come from five machines. Training, PPO, encoding, dreams and acting: a Zen 5 EPYC. The Dreamer's step, the
start of workers and the estimates of `--dry-run`: a slower Xeon without bf16. CUDA graphs: an NVIDIA H200 with torch
2.11. Opening: a Zen 4 EPYC with bf16. All other rows: an older EPYC without bf16.

Ours and the reference take turns. A ratio is the median over the turns, so on a noisy machine it is not the quotient of
the two medians beside it. Rates of different rows were not measured at the same time. Those of play count the seconds
that the browser's processes computed.
"""

_NOTES = """
Streaming CarRacing takes twice as long as an array in RAM, because decoding a chunk costs more than copying it.

On other machines M on latents reached less. In fp32 it was 1.14 times as fast as the plain loop on a Zen 4 EPYC, and
1.18 times on an older one. In bf16 it was 2.02 times as fast on both. On the older one, 256 dreams made 115,000 steps/s
before they packed their weights.

Streaming Pong misses 0.9 on one core: with decoding and nothing else the ratio was 0.85 on the machine of that trial
(log of 2026-11-26). Where copying costs more beside it, as on the machine of the row, it is a little higher.

PPO in dreams spends its time in products of matrices that stable-baselines3's has too: those of M, and of actor and
critic. On the Zen 4 they allowed 40,000 steps/s. The same holds for M on its own rollouts in fp32: two thirds of a
step are products, in either program. In bf16, which a training takes where the processor has it, the goal is met.

## How exact the renderers are

`exact` differs from gymnasium's own frames by 0.004/255 on average in CarRacing and 0.006/255 in LunarLander. The worst
frame differs by 0.013/255 and 0.011/255. CartPole and Atari are identical.
"""


def main() -> None:
    lines = [json.loads(line) for line in BENCHMARKS.read_text().splitlines()]
    PAGE.write_text(page(lines))
    README.write_text(replaced(README.read_text(), "speed", rows(lines, README_ROWS)))


if __name__ == "__main__":
    main()
