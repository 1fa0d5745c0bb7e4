"""The rows of docs/results.json: the evaluations of a run, with the search's curve and the dream's report."""

import hashlib
import json
import statistics
from pathlib import Path
from typing import Any

from stages.options import read_sources
from wm.artifacts.workspace import NO_STICKY
from wm.report.rounds import Round, read_rounds
from wm.settings import ControllerSettings, CurriculumSettings
from wm.settings.sources import preset_names

Row = dict[str, Any]
KEYS = ("env", "agent", "preset", "training_seeds")  # a new row replaces the one with the same
_DREAM = (
    "policies", "rho", "rho_ci95", "rho_last_third", "rho_last_third_ci95", "dream_return", "dream_return_ci95",
    "real_return", "real_return_ci95", "dream_length", "real_length", "z_variance_ratio", "open_loop", "temperature",
)  # fmt: skip


def rows_of(run: Path, preset: str) -> list[Row]:
    """The rows of the random policy and of every evaluated controller or Dreamer of a run."""
    rows = []
    for folder in sorted(path.parent for path in (run / "evaluation").glob("[!.]*/manifest.json")):
        manifest = _manifest(folder)
        score, name = manifest["metrics"], folder.name.removesuffix(NO_STICKY)
        protocol = folder.name.removeprefix(name)
        row = {
            "env": score["env"],
            "agent": "random" + protocol,
            "preset": None,
            "training_seeds": [],
            "mean": round(score["mean"], 2),
            "ci95": round(score["ci95"], 2),
            "episodes": score["episodes"],
            "env_steps": score.get("env_steps", 0),
            "hours": round(score.get("training_wall_seconds", 0) / 3600, 3),
            "command": _command(run, score["env"], name, score["episodes"], preset)
            + (" --set sticky_actions=false" if protocol else ""),
            "commit": manifest["provenance"]["commit"],
            "sha256": hashlib.sha256((folder / "score.json").read_bytes()).hexdigest(),
        }
        if name != "random":
            recipe = _manifest(run / name)["recipe"]
            agent = agent_of(run, recipe, preset, score["env"])
            seeded = run / "controller" if "after-dream" in agent else run / name  # has the seed of V and M
            row |= {
                "agent": agent + protocol,
                "preset": preset,
                "training_seeds": [_manifest(seeded)["recipe"]["settings"]["seed"]],
            }
            if agent == "ppo-dream":
                row["collected_steps"] = _collected(read_rounds(run)[-1])
            if not protocol:
                row["curve"] = _curve_of(run, run / name, agent, recipe["kind"])
                if name == "controller" and (run / "dream" / "manifest.json").exists():
                    metrics = _manifest(run / "dream")["metrics"]
                    row["dream"] = {key: metrics[key] for key in _DREAM}
        rows.append(row)
    return rows


def agent_of(run: Path, recipe: dict[str, Any], preset: str, env: str) -> str:
    """The agent's name: its algorithm, and whatever differs from the preset: C's memory, where it was evolved, and the
    round, unless it is the preset's last."""
    if recipe["kind"] == "dreamer":
        return "dreamer"
    number = next((part.removeprefix(".") for part in run.suffixes if part.startswith(".round")), "round1")
    later = number != "round1"
    algorithm = "ppo" if recipe["settings"].get("algo") == "ppo" else "cma"
    chosen = {"algo": algorithm}
    expected = read_sources(preset).resolve("train-controller", ControllerSettings, env, chosen, later)[0]
    rounds = read_sources(preset).resolve("curriculum", CurriculumSettings, env)[0].rounds or 1
    memory, place = recipe["settings"]["memory"], recipe["settings"]["in_"]
    if place == "real":
        place = "after-dream" if expected.in_ == "dream" and "init_from" in recipe["inputs"] else ""
    parts = [algorithm, memory if memory != expected.memory_used else "", place]
    return "-".join(filter(None, [*parts, number if number != f"round{rounds}" else ""]))


def _manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return manifest


def _command(run: Path, env: str, name: str, episodes: int, preset: str) -> str:
    agent = "" if name == "controller" else f" --agent {name}"
    named = f" --preset {preset}" if preset in preset_names() else ""  # `wm train-dreamer` has presets of its own
    place = f" --run runs/{run.name}" if run.suffixes else ""
    return f"wm evaluate --env {env}{named}{place} --episodes {episodes}{agent}"


def _curve_of(run: Path, controller: Path, agent: str, kind: str) -> list[list[float]]:
    """The curve of a row; of PPO in rounds that of all of them."""
    if agent == "ppo-dream":
        return _rounds_curve(read_rounds(run))
    if agent != "ppo":
        return _curve(controller, kind)
    played = {each.controller.folder: each.controller.metrics.get("env_steps_before", 0) for each in read_rounds(run)}
    return [[before + steps, value] for folder, before in played.items() for steps, value in _curve(folder, kind)]


def _rounds_curve(rounds: list[Round]) -> list[list[float]]:
    """(environment steps, validated mean) of the policy at each round's end; steps with those that were collected."""
    points = []
    for each in rounds:
        if each.validation is not None:
            spent = each.controller.metrics["env_steps"] + each.controller.metrics.get("env_steps_before", 0)
            points.append([spent + _collected(each), round(each.validation.mean, 2)])
    return points


def _collected(last: Round) -> int:
    """Environment steps of the episodes that V and M learned from, up to a round."""
    return int(last.mdnrnn.metrics["collected_steps"])


def _curve(controller: Path, kind: str) -> list[list[float]]:
    """(environment steps, validated mean) of a search; of a Dreamer the mean of its last training episodes."""
    steps, points = 0, []
    if kind == "dreamer":
        lines = [json.loads(line) for line in (controller / "metrics.jsonl").read_text().splitlines()]
        return [[line["step"], round(line["episode_return"], 3)] for line in lines if "episode_return" in line]
    for line in (controller / "generations.jsonl").read_text().splitlines():
        generation = json.loads(line)
        steps += generation["env_steps"]
        if "validation" in generation:
            points.append([steps, round(statistics.fmean(generation["validation"]), 2)])
    return points
