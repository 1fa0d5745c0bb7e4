"""Makes README's table of speed and size from benchmarks/results.jsonl: `python -m benchmarks.pages.speed`."""

import json
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import replaced

ROOT = Path(__file__).resolve().parents[2]
README, BENCHMARKS = ROOT / "README.md", ROOT / "benchmarks" / "results.jsonl"
MEASURED = {
    "collect_pong": ("collect Pong, through to disk", "the bare emulator, no screen"),
    "collect_breakout": ("collect Breakout, through to disk", "the bare emulator, no screen"),
    "collect_carracing_exact": ("collect CarRacing, the same pixels", "gymnasium's env.step alone"),
    "collect_carracing_fast": ("collect CarRacing, `--render fast`", "gymnasium's env.step alone"),
    "collect_lunarlander_exact": ("collect LunarLander, the same pixels", "gymnasium's rgb_array and our resize"),
    "collect_lunarlander_fast": ("collect LunarLander, `--render fast`", "gymnasium's rgb_array and our resize"),
    "collect_cartpole_exact": ("collect CartPole", "gymnasium's rgb_array and our resize"),
    "collect_acrobot_exact": ("collect Acrobot", "gymnasium's rgb_array and our resize"),
    "workers_pong": ("two workers on Pong", "one worker"),
    "workers_carracing": ("two workers on CarRacing", "one worker"),
    "write_share_pong": ("share of collecting Pong that is writing", "all of the time"),
    "size_pong": ("50 random Pong episodes, all columns", "np.savez_compressed of the frames"),
    "bytes_pong": ("Pong on disk", "the limit set for it"),
    "bytes_breakout": ("Breakout on disk", "the limit set for it"),
    "bytes_lunarlander": ("LunarLander on disk", "the limit set for it"),
    "bytes_carracing": ("CarRacing on disk", "the limit set for it"),
    "stream_pong": ("shuffled Pong batches from disk", "the same loop over an array in RAM"),
    "stream_carracing": ("shuffled CarRacing batches from disk", "the same loop over an array in RAM"),
    "window_32": ("random windows of 32 frames", "zarr-python, the same files"),
    "window_50": ("random windows of 50 frames", "zarr-python, the same files"),
    "open_10k": ("open a dataset of 10,000 episodes", "the limit set for it"),
    "ram_streaming": ("peak memory streaming ten times the budget", "budget + 300 MB"),
    "train_vae_fp32": ("train V, the paper's network, fp32, from disk", "a plain loop, frames in RAM, fp32, batch 32"),
    "train_vae_bf16": ("the same in bf16", "the same plain loop"),
    "train_vae_small": ("train V, our network and loss, bf16, from disk", "the same plain loop"),
    "train_vae_stream": ("train V from disk", "the same training from RAM"),
    "encode": ("encode frames to latents", "the paper's encoder, frames in RAM, batch 64"),
    "encode_pong": ("encode 50 Pong episodes", "the limit set for it"),
    "train_mdnrnn_fp32": ("train M on latents, fp32", "nn.LSTM, batch 16, length 32, RMSprop, fp32"),
    "train_mdnrnn_bf16": ("the same in bf16", "the same plain loop"),
    "dream_fp32": ("256 dreams at once, fp32", "the same cell with Categorical"),
    "dream_bf16": ("256 dreams at once, bf16", "the same cell with Categorical"),
    "dream_rate": ("256 dreams at once, bf16", "the rate set for it"),
    "dream_products": ("the two matrix products of that alone", "the same rate"),
    "rollouts_pong": ("play Pong with V, M and C", "the same models, one environment at a time"),
    "rollouts_pong_paper": ("the same", "the paper's V, one environment at a time"),
    "rollouts_carracing_exact": ("play CarRacing, the same pixels", "gymnasium, one at a time, encoder and decoder"),
    "rollouts_carracing_fast": ("play CarRacing, `render=fast`", "gymnasium, one at a time, encoder and decoder"),
    "rollouts_workers": ("play Pong in two processes", "in one"),
    "worker_start": ("two more workers of a command are ready to play so", "two processes spawned anew"),
    "dream_generation": ("64 candidates in 4 dreams of 1,000 steps", "one dream at a time"),
    "dream_generation_time": ("the same", "the time set for it"),
    "cma_cost_dream": ("CMA-ES' share of that generation", "the share set for it"),
    "cma_cost_real": ("CMA-ES' share of a generation of Pong", "the share set for it"),
    "dreamer_step": ("a Dreamer's gradient step, 6.6 M parameters, fp32", "sheeprl 0.8.4, the same sizes, fp32"),
    "memory_vae": ("largest RSS of training V, quick preset", "the limit set for it"),
    "memory_vae_slope": ("its growth over 20,000 steps", "the limit set for it"),
    "foresight_disk": ("quick curriculum: disk of an environment, foretold", "what it was, the worst of four"),
    "foresight_memory": ("the same: memory of a stage", "the worst of 24"),
    "foresight_seconds": ("the same: time of collecting and of training V and M", "the worst of 12"),
    "warm_start_vae": ("V's loss, begun with the weights of another game", "from scratch"),
    "warm_start_mdnrnn": ("M's error, begun with those of another game", "from scratch"),
}

_SIDES = ("ours", "reference")


def measured(lines: list[dict[str, Any]]) -> str:
    """Markdown: what was measured beside its reference."""
    by_name = {line["name"]: line for line in lines}
    rows = ["| | ours | | reference | ratio | goal |", "|---|---|---|---|---|---|"]
    for name, (what, beside) in MEASURED.items():
        line = by_name[name]
        ours, beside_it = (f"{line[key]:,.0f}" if line[key] >= 1000 else f"{line[key]:g}" for key in _SIDES)
        goal = f"{'≤' if line.get('lower_is_better') else '≥'} {line['goal']}"
        rows.append(f"| {what} | {ours} {line['unit']} | {beside} | {beside_it} | {line['ratio']:.2f} | {goal} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    benchmarks = [json.loads(line) for line in BENCHMARKS.read_text().splitlines()]
    README.write_text(replaced(README.read_text(), "benchmarks", measured(benchmarks)))


if __name__ == "__main__":
    main()
