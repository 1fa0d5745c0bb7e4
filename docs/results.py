"""Keeps docs/results.json, and makes README's score table from it.

`python docs/results.py add runs/Pong quick` takes the scores of a finished run; `python docs/results.py` only renders.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS, README = HERE / "results.json", HERE.parent / "README.md"
BEGIN, END = "<!-- scores -->\n", "<!-- /scores -->\n"
ORDER = ("Pong", "LunarLander", "Breakout", "CarRacing", "CartPole", "Acrobot")


def rows_of(run: Path, preset: str) -> list[dict[str, Any]]:
    """The random policy's and the agent's row of a run."""
    seed = json.loads((run / "controller" / "manifest.json").read_text())["recipe"]["settings"]["seed"]
    found = []
    for name, agent in (("random", "random"), ("controller", "vmc")):
        manifest = json.loads((run / "evaluation" / name / "manifest.json").read_text())
        score, provenance = manifest["metrics"], manifest["provenance"]
        found.append(
            {
                "env": score["env"],
                "agent": agent,
                "mean": round(score["mean"], 2),
                "ci95": round(score["ci95"], 2),
                "episodes": score["episodes"],
                "training_seeds": [] if agent == "random" else [seed],
                "preset": None if agent == "random" else preset,
                "env_steps": score.get("env_steps", 0),
                "hours": round(score.get("training_wall_seconds", 0) / 3600, 3),
                "command": provenance["command"],
                "commit": provenance["commit"],
            }
        )
    return found


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: one line per environment and preset, the random policy beside it."""
    random = {row["env"]: row for row in results if row["agent"] == "random"}
    lines = [
        "| environment | preset | random policy | our score | test episodes | env steps | training |",
        "|---|---|---|---|---|---|---|",
    ]
    ours = [row for row in results if row["agent"] == "vmc"]
    for row in sorted(ours, key=lambda row: (ORDER.index(row["env"]), row["preset"])):
        beside = random[row["env"]]
        lines.append(
            f"| {row['env']} | {row['preset']} | {beside['mean']:.1f} ± {beside['ci95']:.1f} | "
            f"**{row['mean']:.1f} ± {row['ci95']:.1f}** | {row['episodes']} | {row['env_steps']:,} | "
            f"{row['hours'] * 60:.1f} min |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if sys.argv[1:2] == ["add"]:
        fresh = rows_of(Path(sys.argv[2]), sys.argv[3])
        keys = {(row["env"], row["agent"], row["preset"]) for row in fresh}
        results = [row for row in results if (row["env"], row["agent"], row["preset"]) not in keys] + fresh
        results.sort(key=lambda row: (ORDER.index(row["env"]), row["agent"], row["preset"] or ""))
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    text = README.read_text()
    before, rest = text.split(BEGIN)
    README.write_text(before + BEGIN + table(results) + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
