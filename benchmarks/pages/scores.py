"""Keeps docs/results.json, one row per agent and training seed; makes docs/results/scores.md and README's table.

`python -m benchmarks.pages.scores add runs/Pong laptop` takes what was evaluated in a run, the search's curve
and the dream's report; without arguments it only renders.
"""

import hashlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.pages.markdown import markdown_table, replaced
from stages.options import Sources, preset_names
from wm.settings import CurriculumSettings

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE, CURVES, README = (
    ROOT / "docs" / "results.json",
    ROOT / "docs" / "results" / "scores.md",
    ROOT / "docs" / "images" / "learning-curves.png",
    ROOT / "README.md",
)
ORDER = ("Pong", "LunarLander", "Breakout", "CarRacing", "CartPole", "Acrobot", "Catch")
AGENTS = {
    "vmc": "ours",
    "vmc-round1": "ours, after the first of two rounds",
    "vmc-350": "ours, one round of 350 generations",
    "vmc-350-round2": "the same, round 2",
    "vmc-untrained": "M untrained",
    "vmc-none": "no M",
    "vmc-160": "ours, longer episodes only from the 107th of 160 generations on",
    "vmc-20-late": "ours, 20 late generations instead of 40",
    "vmc-one-start": "ours, one start",
    "vmc-one-start-again": "the same on another machine",
    "vmc-32": "ours, 32 latents that tell no orientation_targets",
    "vmc-memory": "ours, with M's memory (90 generations)",
    "vmc-linear": "ours, a linear C on [z, h]",
    "vmc-linear-untrained": "the same, M untrained, two late tracks",
    "vmc-linear-none": "the same, no M, two late tracks",
    "vmc-dream": "ours, C evolved in the dream alone",
    "vmc-dream-round2": "the same, round 2",
    "dreamer": "Dreamer",
}
WITHOUT_M = ("CarRacing",)  # ours sees z alone there
GOALS = {  # what was hoped for, and the least of it
    "Pong": (-12, -16),
    "LunarLander": (150, 100),
    "Breakout": (15, 8),
    "CarRacing": (800, 650),
    "CartPole": (400, 400),
    "Acrobot": (-150, -150),
}
Row = dict[str, Any]


def _manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


def rows_of(run: Path, preset: str) -> list[Row]:
    """The row of the random policy and of every controller of a run that was evaluated."""
    found = []
    for place in sorted(path.parent for path in (run / "evaluation").glob("[!.]*/manifest.json")):
        manifest = _manifest(place)
        score, provenance = manifest["metrics"], manifest["provenance"]
        row = {
            "env": score["env"],
            "agent": "random",
            "preset": None,
            "training_seeds": [],
            "mean": round(score["mean"], 2),
            "ci95": round(score["ci95"], 2),
            "episodes": score["episodes"],
            "env_steps": score.get("env_steps", 0),
            "hours": round(score.get("training_wall_seconds", 0) / 3600, 3),
            "command": _command(run, score["env"], place.name, score["episodes"], preset),
            "commit": provenance["commit"],
            "sha256": hashlib.sha256((place / "score.json").read_bytes()).hexdigest(),
        }
        if place.name != "random":
            recipe = _manifest(run / place.name)["recipe"]
            row |= {
                "agent": agent_of(run, recipe, rounds_of(preset, score["env"])),
                "preset": preset,
                "training_seeds": [recipe["settings"]["seed"]],
                "curve": _curve(run / place.name, recipe["kind"]),
            }
            if place.name == "controller" and (run / "dream" / "manifest.json").exists():
                keep = ("policies", "rho", "rho_ci95", "rho_last_third", "rho_last_third_ci95", "dream_return",
                        "dream_return_ci95", "real_return", "real_return_ci95", "dream_length", "real_length",
                        "z_variance_ratio", "open_loop", "temperature")  # fmt: skip
                row["dream"] = {name: _manifest(run / "dream")["metrics"][name] for name in keep}
        found.append(row)
    return found


def rounds_of(preset: str, env: str) -> int:
    """How many rounds a preset has for an environment."""
    return Sources(preset).resolve("curriculum", CurriculumSettings, env)[0].rounds or 1


def agent_of(run: Path, recipe: dict[str, Any], rounds: int) -> str:
    """Who played: what C remembers, where it was evolved, and in which round, unless it is the preset's last."""
    if recipe["kind"] == "dreamer":
        return "dreamer"
    memory, where = recipe["settings"]["mdnrnn"], recipe["settings"]["in_"]
    number = next((part.removeprefix(".") for part in run.suffixes if part.startswith(".round")), "round1")
    parts = ["vmc", memory if memory != "trained" else "", where if where != "real" else ""]
    return "-".join(filter(None, [*parts, number if number != f"round{rounds}" else ""]))


def _command(run: Path, env: str, name: str, episodes: int, preset: str) -> str:
    who = {"random": " --agent random", "controller": ""}.get(name, f" --controller {name}")
    who = " --agent dreamer" if name == "dreamer" else who
    named = f" --preset {preset}" if preset in preset_names() else ""  # a Dreamer has more, of its training alone
    where = f" --run runs/{run.name}" if run.suffixes else ""
    return f"wm evaluate --env {env}{named}{where} --episodes {episodes}{who}"


def _curve(controller: Path, kind: str) -> list[list[float]]:
    """(environment steps so far, validated mean) of a search, or the mean of recent training episodes of a Dreamer."""
    steps, points = 0, []
    if kind == "dreamer":
        lines = [json.loads(line) for line in (controller / "metrics.jsonl").read_text().splitlines()]
        return [[line["step"], round(line["episode_return"], 3)] for line in lines if "episode_return" in line]
    for line in (controller / "generations.jsonl").read_text().splitlines():
        told = json.loads(line)
        steps += told["env_steps"]
        if "validation" in told:
            points.append([steps, round(statistics.fmean(told["validation"]), 2)])
    return points


def _of(rows: list[Row], env: str, agent: str, preset: str | None = None) -> list[Row]:
    return [row for row in rows if (row["env"], row["agent"], row["preset"]) == (env, agent, preset)]


def _score(rows: list[Row]) -> str:
    """Mean over training seeds; of one, with its interval over episodes."""
    if not rows:
        return "–"
    if len(rows) == 1:
        return f"{rows[0]['mean']:.1f} ± {rows[0]['ci95']:.1f}"
    means = [row["mean"] for row in rows]
    return f"{statistics.fmean(means):.1f} ({min(means):.1f} to {max(means):.1f})"


def table(rows: list[Row]) -> str:
    """Markdown for README: a line per environment and preset, with the random policy and the ablations."""
    lines = []
    for env in ORDER:
        presets = sorted({row["preset"] for row in rows if row["env"] == env and row["preset"]}, reverse=True)
        for preset in presets:
            ours = _of(rows, env, "vmc", preset)
            if not ours:
                continue
            others = [_score(_of(rows, env, f"vmc-{memory}", preset)) for memory in ("untrained", "none")]
            if env in WITHOUT_M:
                others[1] = "as ours"
            minutes = statistics.fmean(row["hours"] for row in ours) * 60
            steps = statistics.fmean(row["env_steps"] for row in ours)
            lines.append([env, preset, _score(_of(rows, env, "random")), f"**{_score(ours)}**", *others,
                          str(len(ours)), f"{steps / 1e6:.2f} M", f"{minutes:.0f} min"])  # fmt: skip
    head = ["environment", "preset", "random policy", "our score", "M untrained", "no M", "training seeds",
            "env steps", "training"]  # fmt: skip
    return markdown_table(head, lines)


def _spent(row: Row) -> tuple[str, str]:
    """Steps and time of all rounds, where they were added up."""
    if row["env_steps"] is None:
        return "–", "–"
    return f"{row['env_steps']:,}", f"{row['hours'] * 60:.0f} min"


def page(rows: list[Row]) -> str:
    """Markdown."""
    every = [
        [row["env"], AGENTS.get(row["agent"], row["agent"]), row["preset"] or "–",
         ", ".join(map(str, row["training_seeds"])) or "–", f"{row['mean']:.2f} ± {row['ci95']:.2f}",
         str(row["episodes"]), *_spent(row), f"`{row['commit']}`", f"`{row['sha256'][:12]}`"]
        for row in rows
    ]  # fmt: skip
    goals = []
    for env in ORDER:
        if ours := _of(rows, env, "vmc", "laptop"):
            mean, (goal, floor) = statistics.fmean(row["mean"] for row in ours), GOALS[env]
            verdict = "reached" if mean >= goal else "the least of it" if mean >= floor else "missed"
            goals.append([env, f"{goal} ({floor})", _score(ours), verdict])
    parts = [
        "# Scores\n",
        "Mean return over test episodes on seeds used for nothing else, with the half-width of the 95 % interval, in "
        "the unmodified gymnasium environments (Atari: frame skip 4, sticky actions 0.25; in Breakout our agent serves "
        "by itself). A row comes from one run: `wm evaluate --env Pong --episodes 100`, then "
        "`python -m benchmarks.pages.scores add runs/Pong laptop`. What is kept of a search is the mean that did best "
        "on 20 validation episodes (LunarLander: 50, CarRacing: 30); test episodes have no say in it.\n",
        markdown_table(["environment", "hoped for (at least)", "laptop preset", ""], goals),
        "![Curves](../images/learning-curves.png)\n",
        "*The validated mean of each search, a second round's behind the first, and the random policy (dashed).*\n",
        "## Every row\n",
        "The digest is of the run's score.json, with every episode's return. Steps and time are those of all "
        "rounds; of CartPole's second they were not added up. LunarLander's rows of no M and of an untrained one are "
        "other second rounds from the same first, in which C makes no use of M (`wm train-controller --env LunarLander "
        "--run runs/LunarLander.round2 --from runs/LunarLander --mdnrnn none`, with the preset's later settings), on "
        "one process each beside other searches. CarRacing's with M's memory, or that of an untrained one, have "
        "the V and M of ours with seed 0 (`wm train-controller --env CarRacing --preset laptop --set sees=all "
        "--max-generations 90 --name controller-memory`, with `--mdnrnn untrained` for the other), to be held against "
        "ours with 20 late generations.\n",
        markdown_table(["environment", "agent", "preset", "training seed", "return", "episodes", "env steps",
                        "training", "commit", "digest"], every),
        "## How far the dream can be trusted\n",
        "`wm dream` plays 32 means of the search, from its first generation to its last, in the dream and in reality. "
        "Rank correlation of their returns, with its bootstrap interval; return and length of the controller's own "
        "episodes, cut at 500 steps; the median over latents of their variance in the dream as a share of reality's; "
        "squared error after 15 dreamed steps along the controller's own episodes, as a share of the better of "
        "persistence and the mean latent.\n",
        markdown_table(["environment", "agent", "training seed", "rank correlation", "in the last third",
                "return: dream / real", "length: dream / real", "variance", "error at 15 steps"],
               [_dream(row) for row in rows if "dream" in row]),
    ]  # fmt: skip
    return "\n".join(parts)


def _rho(value: float | None, span: list[float] | None) -> str:
    return "–" if value is None else f"{value:.2f}" + (f" ({span[0]:.2f} to {span[1]:.2f})" if span else "")


def _dream(row: Row) -> list[str]:
    found = row["dream"]
    astray = found["open_loop"]["15"]
    return [
        row["env"],
        AGENTS[row["agent"]],
        ", ".join(map(str, row["training_seeds"])),
        _rho(found["rho"], found["rho_ci95"]),
        _rho(found["rho_last_third"], found["rho_last_third_ci95"]),
        f"{found['dream_return']:.1f} ± {found['dream_return_ci95']:.1f} / "
        f"{found['real_return']:.1f} ± {found['real_return_ci95']:.1f}",
        f"{found['dream_length']:.0f} / {found['real_length']:.0f}",
        f"{found['z_variance_ratio'][1]:.2f}",
        "–" if astray is None else f"{astray['M'] / min(astray['persistence'], astray['mean']):.2f}",
    ]


def _whole_curve(rows: list[Row], row: Row) -> list[list[float]]:
    """The search's curve, behind that of the round before if it is a second one's; another second round than ours only
    from where it leaves ours."""
    firsts = _of(rows, row["env"], "vmc-round1", row["preset"])
    before = next((first["curve"] for first in firsts if first["training_seeds"] == row["training_seeds"]), [])
    played = before[-1][0] if before else 0
    return before[0 if row["agent"] == "vmc" else -1 :] + [[played + steps, value] for steps, value in row["curve"]]


def curves(rows: list[Row]) -> bytes:
    """A PNG: the searches of every environment."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    envs = [env for env in ORDER if _of(rows, env, "vmc", "laptop")]
    figure = Figure(figsize=(9, 2.7 * max(-(-len(envs) // 2), 1)), dpi=100, layout="constrained")
    colors = {"vmc": "tab:purple", "vmc-memory": "tab:blue", "vmc-untrained": "tab:orange", "vmc-none": "tab:gray"}
    places = list(figure.subplots(-(-len(envs) // 2), 2, squeeze=False).flat)
    for axes in places[len(envs) :]:
        axes.remove()
    for axes, env in zip(places, envs, strict=False):
        for agent in colors:
            for number, row in enumerate(_of(rows, env, agent, "laptop")):
                steps, values = zip(*_whole_curve(rows, row), strict=True)
                named = AGENTS[agent] if not number else None
                axes.plot(
                    [step / 1e6 for step in steps], values, color=colors[agent], marker="o", markersize=3, label=named
                )
        for row in _of(rows, env, "random"):
            axes.axhline(row["mean"], color="tab:green", linestyle="--", linewidth=1)
        axes.set(title=env, xlabel="million environment steps", ylabel="validated return")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def main() -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if sys.argv[1:2] == ["add"]:
        fresh = rows_of(Path(sys.argv[2]), sys.argv[3])
        keys = ("env", "agent", "preset", "training_seeds")
        known = [[row[key] for key in keys] for row in fresh]
        results = [row for row in results if [row[key] for key in keys] not in known] + fresh
        results.sort(
            key=lambda row: (ORDER.index(row["env"]), row["agent"], row["preset"] or "", row["training_seeds"])
        )
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(results))
    CURVES.write_bytes(curves(results))
    README.write_text(replaced(README.read_text(), "scores", table(results)))


if __name__ == "__main__":
    main()
