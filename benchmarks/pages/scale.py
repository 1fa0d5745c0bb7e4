"""Renders docs/scale.md: what many frames and a large search cost, computed from measured rows.

    python -m benchmarks.pages.scale                                  writes docs/scale.md
    python -m benchmarks.pages.scale --core-hour 0.02 --workers 16    prints the page with one's own rates

The rows are those of benchmarks/results.jsonl, which `make bench` writes, and of docs/results/scale.json, which
`python -m benchmarks.pages.scale_rates` measures. A rate that is given as a flag takes the place of its row.
"""

import argparse
import dataclasses
import heapq
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pages.markdown import markdown_table
from benchmarks.pages.scale_recipes import RECIPES, TORCHRUN
from wm.episodes.schema import BLOCK_EPISODES, PART_ROWS
from wm.rollouts.collecting import ONE_WRITER, blocks_pay
from wm.training.cost import ENCODED_PER_SECOND, LATENT_BYTES, LATENT_MEMORY
from wm.units import format_duration, format_size

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS, MEASURED = ROOT / "benchmarks" / "results.jsonl", ROOT / "docs" / "results" / "scale.json"
PAGE = ROOT / "docs" / "scale.md"

FILES_PER_PART = 10  # two of each of the four arrays, the group's metadata, and the manifest
# The default of V.
LATENTS = 32
CANDIDATES, EPISODES, STEPS = 64, 16, 1000  # of a generation of the paper's CarRacing
PPO_STEPS, SLOTS, LATE = 256, 8, 20  # of a task of PPO; milliseconds (benchmarks/cluster.py)
PORTIONS = (8, 4, 2, 1)  # episodes of a task
SHORTER, SLOW, SPREAD = 0.15, 0.01, 0.1  # shares: of shorter episodes, of slow workers; deviation of the others' speed
SLOWER = 3.0  # times
FRAMES = (10_000_000, 1_000_000_000)
COLLECTED = {
    "Pong": ("collect_pong", "write_share_pong", "bytes_pong", "pong"),
    "CarRacing": ("collect_carracing_exact", "write_share_carracing_exact", "bytes_carracing", "carracing"),
}


@dataclass(frozen=True)
class Rates:
    """What can be given as a flag. Prices are round figures, nobody's offer; a rate of 0 is that of the row."""

    core_hour: float = 0.04  # of one core with 2 GB, in the currency of all prices
    gigabyte_month: float = 0.023  # of storage
    thousand_writes: float = 0.005  # objects put into a store
    pong: float = 0.0  # steps/s that a core collects
    carracing: float = 0.0
    encode: float = 0.0  # frames/s that a core encodes
    generations: int = 300  # of a search
    # One core, a large machine, and a cluster.
    workers: tuple[int, ...] = (1, 64, 1000)


class Rows:
    """The measured rows by name, with a person's own rates in place of theirs."""

    def __init__(self, rates: Rates) -> None:
        lines = [json.loads(line) for line in BENCHMARKS.read_text().splitlines()]
        self.others = json.loads(MEASURED.read_text())
        self._values = {line["name"]: float(line["ours"]) for line in lines}
        self._values |= {row["name"]: float(row["value"]) for row in self.others}
        own = {"collect_pong": rates.pong, "collect_carracing_exact": rates.carracing, "encode": rates.encode}
        self._values |= {name: value for name, value in own.items() if value}

    def __getitem__(self, name: str) -> float:
        return self._values[name]


def collecting(rows: Rows, rates: Rates) -> str:
    """Markdown: a row for each number of frames and of workers."""
    cells = []
    for env in COLLECTED:
        for frames in FRAMES:
            for workers in rates.workers:
                blocks, playing, writing, returned = collected(rows, env, frames, workers)
                seconds = max(playing, writing)
                cost = workers * seconds / 3600 * rates.core_hour
                cells.append(
                    [env, f"{frames:,}", f"{workers:,}", "workers" if blocks else "client", format_duration(playing),
                     format_duration(writing), format_duration(seconds), f"{cost:,.2f}",
                     format_size(workers * rows["collector"] * 1e6), format_size(returned),
                     format_size(returned / seconds)]
                )  # fmt: skip
    head = [
        "", "frames", "workers", "parts from", "to play", "to write", "time", "cost", "memory", "to the client",
        "a second",
    ]  # fmt: skip
    return markdown_table(head, cells)


def collected(rows: Rows, env: str, frames: int, workers: int) -> tuple[bool, float, float, float]:
    """Whether workers write the parts; the seconds in which all play, and those of the client; and the bytes that it is
    sent. As `collect_episodes` in wm/rollouts/collecting.py."""
    collect, share, _, short = COLLECTED[env]
    rate, rows_each = rows[collect], rows[f"episode_{short}"]
    episodes = math.ceil(frames / rows_each)
    in_blocks = max(episodes - BLOCK_EPISODES, 0)
    if not blocks_pay(episodes, in_blocks, workers, ONE_WRITER):
        writing = frames * rows[share] / rate + episodes * rows["task"] / 1000
        return False, math.ceil(episodes / workers) * rows_each / rate, writing, rows[f"packed_{short}"] * frames
    tasks, parts = math.ceil(in_blocks / BLOCK_EPISODES), math.ceil(in_blocks / episodes_in_part(rows, short))
    in_turn = math.ceil(BLOCK_EPISODES / workers) + math.ceil(tasks / workers) * BLOCK_EPISODES
    writing = (parts * rows["commit"] + tasks * rows["task"]) / 1000
    return True, in_turn * rows_each / rate * (1 + rows[share]), writing, parts * rows["head"]


def episodes_in_part(rows: Rows, short: str) -> int:
    """How many episodes share a part."""
    return min(math.ceil(PART_ROWS / rows[f"episode_{short}"]), BLOCK_EPISODES)


def keeping(rows: Rows, rates: Rates) -> str:
    """Markdown: what the frames take once they are there, whoever has collected them."""
    cells = []
    for env, (_, _, size, short) in COLLECTED.items():
        for frames in FRAMES:
            episodes = frames / rows[f"episode_{short}"]
            parts = math.ceil(episodes / episodes_in_part(rows, short))
            files, disk = FILES_PER_PART * parts, rows[size] * frames
            cells.append(
                [env, f"{frames:,}", format_size(disk), f"{files:,}", f"{disk / 1e9 * rates.gigabyte_month:,.2f}",
                 f"{files / 1000 * rates.thousand_writes:,.2f}", f"{rows['open_10k'] * episodes / 1e7:.1f} s",
                 format_duration(frames / rows[f"stream_{short}"])]
            )  # fmt: skip
    head = ["", "frames", "disk", "files", "a month", "puts", "to open", "to read once"]
    return markdown_table(head, cells)


def training(rows: Rows) -> str:
    """Markdown: the stages that one process does."""
    encoded = rows["encode"] or ENCODED_PER_SECOND
    cells = [
        [f"{frames:,}", format_duration(frames / encoded), format_size(frames * LATENTS * LATENT_BYTES),
         format_size(frames * LATENTS * LATENT_MEMORY), format_duration(frames / rows["train_vae_small"])]
        for frames in FRAMES
    ]  # fmt: skip
    return markdown_table(["frames", "to encode", "latents on disk", "memory for M", "V sees each once"], cells)


def generation_seconds(rows: Rows, workers: int, portion: int) -> float:
    """A generation in tasks of so many episodes, by simulation: the next task goes to the first worker that is free.
    Its random numbers are the same every time."""
    chance = random.Random(0)
    speeds = [1 / SLOWER if chance.random() < SLOW else chance.gauss(1, SPREAD) for _ in range(workers)]
    free = [(0.0, worker) for worker in range(workers)]
    for task in range(CANDIDATES * EPISODES // portion):
        lengths = sorted(int(STEPS * (chance.random() if chance.random() < SHORTER else 1)) for _ in range(portion))
        steps, alone = lengths[-1], sum(lengths)
        milliseconds = rows["lockstep"] * steps + rows["lockstep_episode"] * alone
        begin, worker = heapq.heappop(free)
        begin = max(begin, task * rows["task"] / 1000)  # when the client has sent it
        heapq.heappush(free, (begin + milliseconds / 1000 / speeds[worker], worker))
    return max(end for end, _ in free)


def generations(rows: Rows, rates: Rates) -> str:
    """Markdown: a row for each number of workers."""
    cells = []
    for workers in rates.workers:
        timings = [(generation_seconds(rows, workers, portion), portion) for portion in PORTIONS]
        seconds, portion = min(timings)
        tasks = CANDIDATES * EPISODES // portion
        core_hours = rates.generations * seconds * workers / 3600
        cells.append(
            [f"{workers:,}", f"{seconds:,.1f} s", f"{portion}", format_size(tasks * rows["task_bytes"]),
             f"{tasks * rows['task'] / 1000:.1f} s", format_size(workers * rows["worker"] * 1e6),
             format_duration(rates.generations * seconds), f"{core_hours * rates.core_hour:,.2f}"]
        )  # fmt: skip
    many = f"{rates.generations} of them"
    head = ["workers", "a generation", "episodes a task", "payload", "client's CPU", "memory", many, "cost"]
    return markdown_table(head, cells)


def rollouts(rows: Rows) -> str:
    """Markdown: the steps of PPO's tasks from which a worker on another machine pays."""
    steps = (rows["ppo_play"] / PPO_STEPS, rows["lockstep"] + SLOTS * rows["lockstep_episode"])
    cells = [
        [away, f"{rows[name]:.0f} ms", *(f"{math.ceil(rows[name] / each)} steps" for each in steps)]
        for away, name in (("on the client's machine", "ppo_trip"), (f"{LATE} ms away, either way", "ppo_trip_away"))
    ]
    return markdown_table(["scheduler", "besides the play", "Pong pays from", "CarRacing pays from"], cells)


def traffic(rows: Rows) -> str:
    """Markdown: what a process of torchrun sends in a step (`Ranks.add` in wm/ranks.py)."""
    cells = []
    for count in (2, 4, 8):
        sizes = []
        for model in ("vae", "mdnrnn"):
            gradient = 4 * rows[f"{model}_parameters"]
            # Its pieces' columns to each of the others, and its columns of the sum.
            sizes.append(format_size((8 / count * gradient + gradient) * (count - 1) / count))
        cells.append([str(count), str(8 // count), *sizes])
    return markdown_table(["processes", "pieces of each", "V", "M"], cells)


def measured(rows: Rows) -> str:
    """Markdown: the rows that are on no other page."""
    return markdown_table(["", ""], ([row["what"], f"{row['value']:,} {row['unit']}"] for row in rows.others))


def page(rates: Rates = Rates()) -> str:
    """Markdown."""
    rows = Rows(rates)
    prices = (
        f"Prices: {rates.core_hour:g} for an hour of a core with 2 GB. A GB and month costs {rates.gigabyte_month:g}, "
        f"a thousand objects written {rates.thousand_writes:g}.\nThey are round figures and nobody's offer.\n"
    )
    alone = [collecting(rows, rates), keeping(rows, rates), training(rows)]
    tables = [*alone, generations(rows, rates), rollouts(rows), traffic(rows)]
    texts = [_COLLECTING, _KEEPING, _TRAINING, _GENERATIONS, _ROLLOUTS, TORCHRUN]
    computed = [part for pair in zip(texts, tables, strict=True) for part in pair]
    return "\n".join([_HEAD + prices, *computed, RECIPES, _MEASURED, measured(rows)])


_HEAD = """<!-- Rendered by `python -m benchmarks.pages.scale`; do not edit. -->

# Past one machine

What ten million and a billion frames take, and the paper's search, on other numbers of workers. All figures here are
computed. They come from rates that were measured on one core, on the [page on speed](results/speed.md) and in the last
table. A worker is one core. Nothing was run on 64 workers or more.

With flags, the script prints the page for your own rates and prices:

```
python -m benchmarks.pages.scale --core-hour 0.02 --carracing 700 --workers 16,200
```

"""
_COLLECTING = """## Collecting

Episodes are independent, and each is a task. So the time to play falls with the number of workers. One process, the
client, writes what they play and sends the tasks; its time does not fall. It keeps up with 25 workers of Pong or 50 of
CarRacing. Where more play many episodes, a task is a block of 64 episodes, and its worker writes the parts. They go
into the dataset's folder, if all see it, or into its store. The client commits them, and the bytes are the same. How
long a part takes it was measured on a busy disk, so that is an upper bound. With few blocks for many workers, time is
lost at the end. Memory is that of the workers, each as one that plays CarRacing and writes parts.
"""
_KEEPING = """## Keeping and reading

The same for any number of workers: the bytes are the same. Puts are what it costs to write all files to a store once.
One core opens the dataset, and reads it in shuffled batches.
"""
_TRAINING = """## Encoding and training

One process encodes the frames, and holds their latents in memory while M trains. A billion frames need a machine of
that size, or V and M from the first ones: `--episodes`. V rarely has to see every
frame: the presets train it for some thousand steps.
"""
_GENERATIONS = """## The paper's generations

64 candidates play 16 episodes each of CarRacing, 1,000 steps long. The times come from a small simulation. In it 15 %
of the episodes are shorter, speeds differ by a tenth, and one worker in a hundred is three times slower. Of the
sizes of a task the fastest is shown. A worker is given its own candidate's parameters; models go to it once.
Dask's own messages, about 1.9 kB a task, come on top of the payload.
"""
_ROLLOUTS = """## PPO's rollouts

A task is `rollout_steps` steps in eight slots, 128 by default, and an iteration waits for all of its tasks. A worker on
another machine pays where eight slots play for longer than the rest of a task takes. Then two tasks are done sooner
there and here than one after the other here. What it takes besides was measured with real processes of Dask; all that
client and scheduler sent each other was held back. They were on one busy machine, so that is an upper bound, but the
bandwidth was not limited. From how many steps it pays is computed.
"""
_MEASURED = """## What this page was computed from

On two cores of an AMD EPYC with Python 3.11, in November 2026, once each. `python -m benchmarks.pages.scale_rates`
measures all of them or those that it is given.
"""


def _rates(words: list[str] | None = None) -> Rates | None:
    """The rates given as flags; None without any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for item in dataclasses.fields(Rates):
        kind = _numbers if item.name == "workers" else type(item.default)
        parser.add_argument(f"--{item.name.replace('_', '-')}", type=kind)
    rates = {name: value for name, value in vars(parser.parse_args(words)).items() if value is not None}
    return Rates(**rates) if rates else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def main() -> None:
    if (rates := _rates()) is not None:
        print(page(rates))
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
