"""Fills docs/results/learning.json, the figures of V and M, and renders learning.md from it.

`python -m benchmarks.pages.learning models Pong 0` collects, trains V and M with the laptop preset and
seed 0; `losses Pong 0` trains V with several losses and networks on equally many images; without arguments it only
renders. Episodes and runs stay in build/learning, so an interrupted row resumes.
"""

import fcntl
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import markdown_table
from wm.report.conclusions import prediction_ratio, prediction_word

ROOT = Path(__file__).resolve().parents[2]
ROWS, PAGE, BUILD = (
    ROOT / "docs" / "results" / "learning.json",
    ROOT / "docs" / "results" / "learning.md",
    ROOT / "build" / "learning",
)
ENVS = ("Pong", "LunarLander", "Breakout", "CarRacing")
BATCHES = 200  # of 64 frames, in the comparison of losses
_PAPER = ("--set", "reconstruction_nats=0", "--set", "pixel_weighting=0", "--set", "position_targets=0")
_SMALL = ("--network", "small")
FORMS: dict[str, tuple[str, ...]] = {
    "small, default loss (bf16)": (*_SMALL, "--precision", "bf16"),
    "small, default loss (fp32)": (*_SMALL, "--precision", "fp32"),
    "small, without position targets": (*_SMALL, "--set", "position_targets=0"),
    "small, the paper's loss": (*_SMALL, *_PAPER),
    "paper's network, default loss": ("--network", "paper"),
    "paper's network and loss": ("--network", "paper", *_PAPER),
}


def wm(command: str, *options: str) -> dict[str, Any]:
    """The JSON object that a command prints."""
    words = [sys.executable, "-c", "from stages.cli import main; main()", command, *options, "--json"]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def collect(env: str) -> Path:
    """The dataset of the laptop preset, the same for every seed and loss."""
    path = BUILD / f"{env}.zarr"
    wm("collect", "--env", env, "--data", str(path), "--preset", "laptop", "--workers", "1")
    return path


def models(env: str, seed: int) -> None:
    """One row: V and M of the laptop preset."""
    where = ("--env", env, "--data", str(collect(env)), "--run", str(BUILD / f"{env}-{seed}"))
    options = (*where, "--preset", "laptop", "--seed", str(seed))
    vae, mdnrnn = wm("train-vae", *options), wm("train-mdnrnn", *options)
    keep = ("probe", "validation_error", "mean_image_error", "validation_kl", "rows", "precision", "steps")
    row: dict[str, Any] = {"vae": {name: vae["metrics"][name] for name in keep}, "mdnrnn": mdnrnn["metrics"]}
    row["seconds"] = {"vae": vae["wall_seconds"], "mdnrnn": mdnrnn["wall_seconds"]}
    add({"kind": "models", "env": env, "seed": seed, **row})


def losses(env: str, seed: int) -> None:
    """One row for every loss and network of V."""
    data = collect(env)
    for number, (form, extra) in enumerate(FORMS.items()):
        run = BUILD / f"{env}-{seed}-{number}"
        options = ("--env", env, "--data", str(data), "--run", str(run), "--preset", "laptop", "--seed", str(seed))
        metrics = wm("train-vae", *options, *extra, "--steps", str(BATCHES))["metrics"]
        row = {name: metrics[name] for name in ("probe", "validation_error")}
        add({"kind": "losses", "env": env, "seed": seed, "form": form, **row})


def add(row: dict[str, Any]) -> None:
    """Insert a row, or replace the one with the same key, under a lock."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    row |= {"commit": commit.stdout.strip(), "threads": os.environ.get("OMP_NUM_THREADS", "all")}
    key = ("kind", "env", "seed", "form")
    # Rows of several seeds may be added at once.
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = json.loads(ROWS.read_text()) if ROWS.exists() else []
        rows = [old for old in rows if any(old.get(name) != row.get(name) for name in key)] + [row]
        rows.sort(key=lambda item: (item["kind"], ENVS.index(item["env"]), item["seed"], item.get("form", "")))
        ROWS.write_text(json.dumps(rows, indent=0) + "\n")


def spread(values: Iterable[float | None], digits: int = 2) -> str:
    """Median and range over seeds."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return "–"
    middle = statistics.median(known)
    return f"{middle:.{digits}f} ({known[0]:.{digits}f} to {known[-1]:.{digits}f})"


def page(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    trained = [row for row in rows if row["kind"] == "models"]
    parts = [
        "<!-- Rendered by `python -m benchmarks.pages.learning`; do not edit. -->\n",
        "# What V and M learn\n",
        "Median and range over three training seeds, on validation episodes. "
        "`python -m benchmarks.pages.learning models Pong 0` measures a row: it collects, and trains V and M with the "
        "laptop preset. `losses Pong 0` compares losses. learning.json has the commit of each row. V and M learn from "
        "random play here. M learns on its own rollouts and has no memory.\n",
        "## Overview\n",
        summary(trained),
        "![Reconstructions of Breakout](../images/reconstructions-breakout.png)\n",
        "*Breakout below its hidden wall, and V's reconstructions, laptop preset.*\n",
        "## V: linear probes of a sampled z\n",
        "R2 on validation episodes; untrained is the same network before training. Labels marked * describe motion, "
        "which a single RGB frame does not show.\n",
        _probes(trained),
        "## M: negative log-likelihood and baselines\n",
        _likelihoods(trained),
        "Open loop: squared error of the mean of 16 dreams after 16 real steps. It is a share of the best of linear "
        "autoregression, persistence and the mean latent. Where the interval of the difference is stored, it "
        "says in how many seeds M is better.\n",
        _open_loop(trained),
        "## M: positions in dreams\n",
        "A small network reads positions from z. Its error is the root mean square in the label's units, the median "
        "over seeds: in Atari pixels of the screen, elsewhere the environment's. V is what it reads from V's z, in "
        "every held-out step. The others are after as many dreamt steps, from 16 real ones on. In brackets is the best "
        "of linear autoregression, persistence and the mean.\n",
        _positions(trained),
        "## M: rewards and ends\n",
        _events(trained),
        f"## Losses and networks of V at equal images ({BATCHES * 64:,})\n",
        "Worst and mean R2 over the labels that a frame shows (a label that cannot be decoded counts 0), and squared "
        "error per frame. Breakout's rows are of whole RGB frames and CarRacing's of 32 latents without orientation "
        "targets. Their presets now hide wall and score, and use 24 latents with orientation targets. These rows are "
        "older than version 0.3.0.\n",
        _forms([row for row in rows if row["kind"] == "losses"]),
    ]
    return "\n".join(parts)


def summary(rows: list[dict[str, Any]]) -> str:
    """Markdown: medians, one line per environment."""
    lines = []
    for env in _envs(rows):
        own = [row for row in rows if row["env"] == env]
        labels = [name for name in own[0]["vae"]["probe"] if name not in _hidden(env)]
        lines.append(
            [
                env,
                ", ".join(f"{name} {_median(row['vae']['probe'][name]['r2'] for row in own)}" for name in labels),
                *(_median(row["mdnrnn"][name] for row in own) for name in ("nll", "nll_linear")),
                _median(_share(row, "15") for row in own),
                _median(row["mdnrnn"]["reward"]["recall"] for row in own),
            ]
        )
    head = [
        "environment",
        "V: R2 of",
        "M: nats per dimension",
        "linear autoregression",
        "open loop, 15 steps\\*",
        "recall of rare rewards\\*\\*",
    ]
    notes = (
        "\n\\* squared error as a share of the best of linear autoregression, persistence and the mean latent. \\*\\* "
        "within one step, at precision 0.5.\n"
    )
    return markdown_table(head, lines) + notes


def _median(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.2f}" if known else "–"


def _of(rows: list[dict[str, Any]], env: str, get: Callable[[dict[str, Any]], float | None]) -> list[float | None]:
    return [get(row) for row in rows if row["env"] == env]


def _envs(rows: list[dict[str, Any]]) -> list[str]:
    return [env for env in ENVS if any(row["env"] == env for row in rows)]


def _hidden(env: str) -> tuple[str, ...]:
    from wm.envs.registry import find_env

    known = find_env(env).probe
    return known.hidden if known else ()


def _probes(rows: list[dict[str, Any]]) -> str:
    lines = []
    for env in _envs(rows):
        for name in next(row for row in rows if row["env"] == env)["vae"]["probe"]:
            star = "*" if name in _hidden(env) else ""
            figures = [
                spread(_of(rows, env, lambda row: row["vae"]["probe"][name][key]))  # noqa: B023
                for key in ("r2", "untrained", "error")
            ]
            lines.append([env, name + star, *figures])
    return markdown_table(["environment", "label", "R2", "untrained", "error (the label's units)"], lines)


def _likelihoods(rows: list[dict[str, Any]]) -> str:
    names = ("nll", "nll_linear", "nll_persistence", "nll_mean")
    lines = [
        [env, *(spread(_of(rows, env, lambda row: row["mdnrnn"][name])) for name in names)]  # noqa: B023
        for env in _envs(rows)
    ]
    return markdown_table(
        ["nats per dimension of the next z", "M", "linear autoregression", "persistence", "marginal"], lines
    )


def _share(row: dict[str, Any], ahead: str) -> float | None:
    errors = row["mdnrnn"]["open_loop"][ahead]
    return None if errors is None else prediction_ratio(errors)


def _shares(rows: list[dict[str, Any]], ahead: str) -> str:
    """The spread of M's share over seeds, and in how many of those with an interval it is better."""
    text = spread(_share(row, ahead) for row in rows)
    errors = [row["mdnrnn"]["open_loop"][ahead] for row in rows]
    words = [word for error in errors if error and (word := prediction_word(error))]
    return f"{text}; better in {words.count('better')} of {len(words)}" if words else text


def _open_loop(rows: list[dict[str, Any]]) -> str:
    horizons = ("1", "5", "15", "50")
    lines = [
        [env, *(_shares([row for row in rows if row["env"] == env], ahead) for ahead in horizons)]
        for env in _envs(rows)
    ]
    return markdown_table(["steps ahead", *horizons], lines)


def _events(rows: list[dict[str, Any]]) -> str:
    lines = []
    for env in _envs(rows):
        parts = [
            ("reward", "rank_correlation", 2),
            ("reward", "recall", 2),
            ("end", "brier", 5),
            ("end", "brier_rate", 5),
        ]
        figures = [spread(_of(rows, env, lambda row: row["mdnrnn"][a][b]), digits) for a, b, digits in parts]  # noqa: B023
        lines.append([env, *figures, spread(_of(rows, env, _expected_ends))])
    head = [
        "environment",
        "reward: rank correlation",
        "recall at precision 0.5",
        "end: Brier score",
        "of the base rate",
        "predicted ends per real end",
    ]
    return markdown_table(head, lines)


def _expected_ends(row: dict[str, Any]) -> float | None:
    end = row["mdnrnn"]["end"]
    return float(end["expected"] / end["observed"]) if end["observed"] else None


def _positions(rows: list[dict[str, Any]]) -> str:
    horizons = ("1", "5", "15", "30")
    lines = []
    for env in _envs(rows):
        own = [row["mdnrnn"]["positions"] for row in rows if row["env"] == env]
        for name in own[0]:
            errors = [positions[name] for positions in own]
            figures = [
                f"{_median(error['M'][ahead] for error in errors)} ({_median(_baseline(e, ahead) for e in errors)})"
                for ahead in horizons
            ]
            lines.append([env, name, _median(error["V"] for error in errors), *figures])
    return markdown_table(["environment", "label", "V", *(f"after {ahead}" for ahead in horizons)], lines)


def _baseline(errors: dict[str, Any], ahead: str) -> float:
    return min(float(errors[name][ahead]) for name in ("linear", "persistence", "mean"))


def _r2_of_labels(row: dict[str, Any]) -> list[float]:
    hidden = _hidden(row["env"])
    values = (probe["r2"] for name, probe in row["probe"].items() if name not in hidden)
    return [max(value, 0.0) for value in values if value is not None]


def _forms(rows: list[dict[str, Any]]) -> str:
    lines = []
    for env in _envs(rows):
        for form in FORMS:
            own = [row for row in rows if row["form"] == form]
            figures = [
                spread(_of(own, env, lambda row: min(_r2_of_labels(row)))),
                spread(_of(own, env, lambda row: statistics.mean(_r2_of_labels(row)))),
                spread(_of(own, env, lambda row: row["validation_error"]), 1),
            ]
            lines.append([env, form, *figures])
    return markdown_table(["environment", "V", "worst R2", "mean R2", "squared error"], lines)


def main() -> None:
    if len(sys.argv) > 1:
        BUILD.mkdir(parents=True, exist_ok=True)
        {"models": models, "losses": losses}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    else:
        rows = json.loads(ROWS.read_text())
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
