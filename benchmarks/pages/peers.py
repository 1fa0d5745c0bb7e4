"""Renders docs/results/peers.md and its figure from docs/results/peers.json, whose rows `python -m benchmarks.peers`
makes."""

import json
import math
import statistics
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import markdown_table
from benchmarks.peers.settings import CUTS, METHODS, OURS, PEERS, SOURCE
from wm.report.plots import Curve, Plot, to_png

ROOT = Path(__file__).resolve().parents[2]
RESULTS, ROWS, PAGE, FIGURE = (
    ROOT / "docs" / "results.json",
    ROOT / "docs" / "results" / "peers.json",
    ROOT / "docs" / "results" / "peers.md",
    ROOT / "docs" / "images" / "peers.png",
)
ENVS = ("CartPole", "Pong", "Breakout", "LunarLander", "CarRacing")  # those to be measured
LEVELS = {"Pong": -5.0}  # a mean return, set beforehand, whose minutes are compared
Row = dict[str, Any]
Tested = dict[str, Any]  # a score at a cut, and the method's name


def _envs(rows: list[Row]) -> list[str]:
    return [env for env in ENVS if any(row["env"] == env for row in rows)]


def _at(rows: list[Row], env: str, cut: float, methods: tuple[str, ...]) -> list[Tested]:
    """What these methods have at a cut, the worst seed of each; without a mean where there is no policy yet."""
    worst = []
    for method in methods:
        own = [one for row in rows if (row["env"], row["method"]) == (env, method)
               for one in row["cuts"] if one["minutes"] == cut]  # fmt: skip
        if own:
            # The worst seed, so that a lucky one claims nothing.
            worst.append(min(own, key=lambda one: one.get("mean", -math.inf)) | {"method": method})
    return worst


def _sentence(one: Tested) -> str:
    return f"`{one['method']}` returns {one['mean']:.1f} ± {one['ci95']:.1f}"


def comparisons(rows: list[Row]) -> Iterator[tuple[str, str]]:
    """(behind, level, ahead or alone; a sentence) for every environment and cut at which a peer was tested."""
    for env in _envs(rows):
        for cut in CUTS:
            peers = [one for one in _at(rows, env, cut, PEERS) if "mean" in one]
            ours = _at(rows, env, cut, tuple(OURS))
            if not peers:
                continue
            other = max(peers, key=lambda one: one["mean"])
            where = f"{env}, {cut} minutes: {_sentence(other)}"
            scored = [one for one in ours if "mean" in one]
            if not scored:
                yield ("behind", f"{where}; ours has no policy yet.") if ours else ("alone", f"{where}.")
                continue
            best = max(scored, key=lambda one: one["mean"])
            gap, noise = best["mean"] - other["mean"], math.hypot(best["ci95"], other["ci95"])
            yield "level" if abs(gap) <= noise else "ahead" if gap > 0 else "behind", f"{where}; our {_sentence(best)}."


def _conclusions(rows: list[Row]) -> list[str]:
    """Where ours is behind comes first."""
    titles = {
        "behind": "Behind:",
        "level": "Within the intervals of one another:",
        "ahead": "Ahead of every peer that was tested:",
        "alone": "Ours was not run:",
    }
    sentences = list(comparisons(rows))
    if not sentences:
        return ["No peer has been tested yet: this page says nothing about where ours is behind.\n"]
    parts = [
        f"{title}\n\n" + "".join(f"- {sentence}\n" for kind, sentence in sentences if kind == name)
        for name, title in titles.items()
        if any(kind == name for kind, _ in sentences)
    ]
    nowhere = [] if any(kind == "behind" for kind, _ in sentences) else ["Ours is behind at no cut that was tested.\n"]
    return nowhere + parts


def _missing(rows: list[Row]) -> str:
    """What nobody has measured."""
    known = {(row["env"], row["method"]) for row in rows}
    parts = []
    for env in ENVS:
        names = [f"`{method}`" for method in METHODS if (env, method) not in known]
        if names:
            parts.append(f"{env} {'any' if len(names) == len(METHODS) else ', '.join(names)}")
    return f"Not measured: {'; '.join(parts)}.\n" if parts else ""


def _reached(row: Row, mean: float, axis: int = 1) -> str:
    """The environment steps (axis 1) or minutes (0) at which a curve first has this mean."""
    form = ",d" if axis == 1 else ".1f"
    reached = next((point[axis] for point in row["curve"] if point[2] >= mean), None)
    if reached is not None:
        return f"{reached:{form}}"
    return f"not in {row['curve'][-1][axis]:{form}}" if row["curve"] else "–"


def _steps(rows: list[Row]) -> list[str]:
    """How many environment steps others took to return what C did that learned in the dream."""
    lines = []
    for row in rows:
        scored = [one for one in row["cuts"] if "mean" in one]
        if row["method"] != "dream" or not scored:
            continue
        best = scored[-1]
        for other in rows:
            if other["env"] == row["env"] and other["method"] != "dream":
                lines.append([row["env"], f"{best['mean']:.1f}", f"{best['env_steps']:,}", f"`{other['method']}`",
                              _reached(other, best["mean"])])  # fmt: skip
    if not lines:
        return []
    head = ["environment", "`dream` returns", "after env steps", "learner", "returns as much after env steps"]
    return [
        "## Real steps\n",
        "The last score of `dream`, and where the learning curves of the others first have that mean.\n",
        markdown_table(head, lines),
    ]


def _minutes(rows: list[Row]) -> list[str]:
    """How many minutes each learner took to a level of LEVELS."""
    lines = [
        [env, f"{level:g}", f"`{row['method']}`", str(row["seed"]), _reached(row, level, 0), _reached(row, level)]
        for env, level in LEVELS.items()
        for row in rows
        if row["env"] == env
    ]
    if not lines:
        return []
    head = ["environment", "mean return", "learner", "seed", "after minutes", "after env steps"]
    return [
        "## Minutes to a mean return\n",
        "Where the learning curves first have that mean, of 100 training episodes or of a validation.\n",
        markdown_table(head, lines),
    ]


def _cell(scores: list[Tested]) -> str:
    if not scores:
        return "–"
    means = [one["mean"] for one in scores if "mean" in one]
    if len(means) < len(scores):
        return "no policy yet"
    steps = f", {statistics.fmean(one['env_steps'] for one in scores) / 1000:,.0f} k steps"
    if len(scores) == 1:
        return f"{means[0]:.1f} ± {scores[0]['ci95']:.1f}{steps}"
    return f"{statistics.fmean(means):.1f} ({min(means):.1f} to {max(means):.1f}){steps}"


def _table(rows: list[Row]) -> str:
    """With what random play returns, beside the environment's name."""
    scores = json.loads(RESULTS.read_text())
    random = {one["env"]: f"{one['mean']:.1f}" for one in scores if one["agent"] == "random"}
    lines = []
    for env in _envs(rows):
        for method in METHODS:
            own = [row for row in rows if (row["env"], row["method"]) == (env, method)]
            if not own:
                continue
            at = [[one for row in own for one in row["cuts"] if one["minutes"] == cut] for cut in CUTS]
            seeds, clocks = ", ".join(str(row["seed"]) for row in own), {row["clock"] for row in own}
            marked = f"`{method}`" + ("\\*" if "wall" in clocks else "")
            lines.append([env, random.get(env, "–"), marked, seeds, *map(_cell, at)])
    return markdown_table(
        ["environment", "random policy", "learner", "seeds", *(f"{cut} minutes" for cut in CUTS)], lines
    )


def _every(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        ended = f"{row['cuts'][-1].get('spent', row['cuts'][-1]['minutes']):.1f}"
        versions = ", ".join(f"{name} {row['versions'][name]}" for name in ("torch", "stable-baselines3", "wm")
                             if row["versions"].get(name))  # fmt: skip
        lines.append([row["env"], f"`{row['method']}`", str(row["seed"]), ended, row["clock"], f"`{row['command']}`",
                      f"`{row['commit']}`", f"{versions}, Python {row['python']}", row["machine"]])  # fmt: skip
    head = ["environment", "learner", "seed", "minutes", "clock", "command", "commit", "versions", "machine"]
    return markdown_table(head, lines)


def page(rows: list[Row]) -> str:
    """Markdown."""
    parts = [
        "<!-- Rendered by `python -m benchmarks.pages.peers`; do not edit. -->\n",
        "# Peers at equal minutes\n",
        *_conclusions(rows),
        _missing(rows),
        _table(rows),
        "The mean return over 100 test episodes with its 95 % interval over episodes, and the environment steps "
        "played until then. With several seeds it is the mean over seeds and their range. Above, a learner stands for "
        "its worst seed. A training that ended before a cut keeps its last score. \\* The minutes are those of a "
        "clock on the wall: at most so many CPU minutes.\n",
        "![Learning curves over minutes and over steps](../images/peers.png)\n",
        "*Left over minutes, right over environment steps, of each learner the seed that ends lowest. Mean of the last "
        "100 training episodes, which have each learner's own exploration; of `dream` and `cma` the mean of a "
        "validation.*\n",
        *_minutes(rows),
        *_steps(rows),
        _PROTOCOL,
        "## Every row\n",
        _every(rows),
    ]
    return "\n".join(parts)


_PROTOCOL = f"""## How they are compared

- **Minutes are CPU time** of the process and of all it starts, one thread, because the machine is shared with other
  programs. Everything counts: imports, collecting, V, M and C; testing does not. V's minutes count for a learner on
  latents. A run that was not measured so has the time that went by since its start, marked \\*; other programs lengthen
  that.
- **Tests** are those of `wm evaluate`: 100 episodes with the same seeds for all, in the unmodified gymnasium
  environment. Atari has frame skip 4 and sticky actions 0.25. Returns are whole and not clipped.
- **At a cut** a peer has the policy of its latest update. Ours has the C of the last finished round, and in the first
  round the newest one that the search kept. Before that there is none.
- **Peers** are stable-baselines3's, with the settings of {SOURCE}. Where the zoo takes a multilayer perceptron, pixels
  are seen by `CnnPolicy` without the zoo's layers. They are the last four of the 64x64 frames that ours sees. In Atari
  these are four gray frames of 84x84, as in the zoo. Training plays what is tested, with sticky actions; frame skip is
  the environment's, without the maximum of two frames. A learner on latents sees [z, z minus z before] of the V of the
  laptop preset. A training ends with the zoo's steps.
- PPO draws its actions in Atari, as the zoo does, and takes the likeliest elsewhere. DQN takes the best.
- **Ours** are `wm curriculum` with `--preset laptop` (`ppo`), `--preset dream` (`dream`), and `--preset laptop --set
  train-controller.algo=cma` (`cma`). A row has the preset of its commit: Pong's of `ppo` played 3 M steps in one
  round, with V of 32 latents.
"""


def plots(rows: list[Row]) -> list[Plot]:
    """Two for each environment: over minutes and over environment steps."""
    charts = []
    for env, group in groupby(sorted(rows, key=lambda row: ENVS.index(row["env"])), lambda row: row["env"]):
        worst: dict[str, Row] = {}  # of each learner the seed that ends lowest: a legend has room for few names
        for row in filter(lambda row: row["curve"], group):
            kept = worst.setdefault(row["method"], row)
            worst[row["method"]] = min(kept, row, key=lambda each: each["curve"][-1][2])
        for place, label, unit in ((0, "minutes", 1), (1, "thousand environment steps", 1000)):
            curves = [
                Curve(method, [point[place] / unit for point in row["curve"]], [point[2] for point in row["curve"]])
                for method, row in worst.items()
            ]
            charts.append(Plot(label, "return", curves, env))
    return charts


def main() -> None:
    rows = json.loads(ROWS.read_text())
    PAGE.write_text(page(rows))
    FIGURE.write_bytes(to_png(plots(rows)))


if __name__ == "__main__":
    main()
