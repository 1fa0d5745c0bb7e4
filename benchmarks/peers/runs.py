"""Ours at the cuts: what a finished run of `wm curriculum` had learned by then, read from its logs."""

import calendar
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.peers.minutes import Clock, CpuClock, WallClock, read, run_measured
from benchmarks.peers.settings import OURS
from wm.artifacts import runs
from wm.artifacts.runs import Artifact
from wm.artifacts.workspace import Workspace, env_slug
from wm.errors import MissingInput, WmError
from wm.evaluation.score import MIN_EPISODES, open_agent
from wm.pretrained import load_controller
from wm.report.rounds import Round, first_of_rounds, read_rounds
from wm.rollouts.players import PolicySpec

ROOT = Path(__file__).resolve().parents[2]
LOG = "cpu.jsonl"  # beside the folders `data` and `runs` of a run that is measured
RECENT = 100  # episodes, of which a learning curve shows the mean
POINTS = 60  # of a learning curve
Point = tuple[float, int, float]  # minutes, environment steps, mean return


@dataclass(frozen=True)
class Policy:
    """C at a cut: `score` is that of `wm evaluate`, where it has tested this one."""

    spec: PolicySpec
    minutes: float
    env_steps: int
    score: dict[str, Any] | None


def train_ours(folder: Path, env: str, method: str, seed: int) -> Path:
    """Run `wm curriculum`, or what is left of it, and measure its CPU time. Returns the folder of its last round."""
    _wm(folder, "curriculum", *OURS[method], "--envs", env, "--seed", str(seed), "--jobs", "1")
    return max((folder / "runs").glob(f"{env_slug(env)}*"), key=lambda path: len(read_rounds(path)))


def train_vae(folder: Path, env: str, seed: int) -> Path:
    """Collect and train V with the laptop preset, measured. Returns the run."""
    run = folder / "runs" / env_slug(env)
    if not (run / "vae" / "manifest.json").exists():
        for stage in ("collect", "train-vae"):
            _wm(folder, stage, "--env", env, "--preset", "laptop", "--seed", str(seed))
    return run


def _wm(folder: Path, *words: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = (sys.executable, "-m", "stages", *words, "--workers", "1")
    if code := run_measured(command, folder, folder / LOG, ROOT):
        raise WmError(f"`wm {' '.join(words)}` ended with exit code {code}; the same command resumes.")


def clock_of(run: Path) -> Clock:
    """By the CPU time that was measured beside a run, else by the time that went by since it began."""
    base = first_of_rounds(run)
    log = base.parent.parent / LOG
    if log.exists():
        return CpuClock(read(log))
    vae = runs.load(base / "vae", "vae", "wm train-vae")
    return WallClock(finished(vae) - vae.wall_seconds - vae.metrics.get("collecting_seconds", 0))


def finished(artifact: Artifact) -> float:
    """The time of day at which it was finished."""
    return calendar.timegm(time.strptime(artifact.manifest["provenance"]["finished"], "%Y-%m-%dT%H:%M:%SZ"))


def vae_cost(run: Path) -> tuple[float, int]:
    """CPU seconds and environment steps until V was trained."""
    vae = runs.load(first_of_rounds(run) / "vae", "vae", "wm train-vae")
    return 60 * clock_of(run).minutes(finished(vae)), int(vae.metrics["collected_steps"])


def open_rounds(run: Path) -> list[Round]:
    """The rounds of a finished run. Raises MissingInput without one."""
    if not (rounds := read_rounds(run)):
        raise MissingInput(f"{run} has no trained C; finish `wm curriculum` first.")
    return rounds


def _times(each: Round) -> list[float]:
    """The time of day of every line of a search's log. What it did besides counts as done before."""
    spent = list(accumulate(line["seconds"] for line in each.lines))
    return [finished(each.controller) - spent[-1] + seconds for seconds in spent]


def _steps(each: Round) -> list[int]:
    """The environment steps until every line, with those that V and M learned from."""
    before = each.controller.metrics.get("env_steps_before", 0) + each.mdnrnn.metrics["collected_steps"]
    return [int(before) + steps for steps in accumulate(line["env_steps"] for line in each.lines)]


def curve(rounds: Sequence[Round], clock: Clock) -> list[Point]:
    """The mean return of the latest training episodes where C learns in reality by policy gradient, else that of its
    validations."""
    points, recent = list[Point](), deque[float](maxlen=RECENT)
    for each in rounds:
        for line, when, steps in zip(each.lines, _times(each), _steps(each), strict=True):
            in_reality = line["in"] == "real" and "policy" in line
            recent.extend(line["returns"] if in_reality else ())
            returns = list(recent) if in_reality else line.get("validation", [])
            if returns:
                points.append((round(clock.minutes(when), 2), steps, round(statistics.fmean(returns), 2)))
    return list(_thinned(points))


def _thinned(points: list[Point]) -> Iterator[Point]:
    """At most about POINTS of them, with the last one."""
    every = max(len(points) // POINTS, 1)
    yield from points[: len(points) - 1 : every]
    yield from points[-1:]


def policy_at(env: str, rounds: Sequence[Round], clock: Clock, cut: float) -> Policy | None:
    """The C of the last round that was finished at this minute; in the first round the newest one that the search
    kept. None while there is none."""
    done = [each for each in rounds if clock.minutes(finished(each.controller)) <= cut]
    each = done[-1] if done else rounds[0]
    workspace = Workspace(env, each.controller.folder.parent, ())
    if done:
        minutes, steps = clock.minutes(finished(each.controller)), _steps(each)[0] - each.lines[0]["env_steps"]
        steps += each.controller.metrics["env_steps"]
        agent = open_agent(workspace, "controller")
        return Policy(agent.spec, minutes, steps, _score(workspace.run, agent.inputs))
    trained = load_controller(each.controller.folder, workspace.command("train-controller"))
    times, places = _times(each), {line["generation"]: number for number, line in enumerate(each.lines)}
    candidates = [
        (places[generation], parameters)
        for generation, parameters in zip(trained.artifact.metrics["means"], trained.means, strict=True)
        if generation in places and clock.minutes(times[places[generation]]) <= cut
    ]
    if not candidates:
        return None
    number, parameters = candidates[-1]
    spec = open_agent(workspace, "controller").spec
    likeliest = replace(spec.controller, sampled=False)
    spec = replace(spec, controller=likeliest, parameters=tuple(parameters.tolist()))
    return Policy(spec, clock.minutes(times[number]), _steps(each)[number], None)


def _score(run: Path, inputs: dict[str, str]) -> dict[str, Any] | None:
    """The score of this C in its run, if `wm evaluate` has tested it in enough episodes."""
    folder = run / "evaluation" / "controller"
    if not (folder / "manifest.json").exists():
        return None
    artifact = runs.read(folder, "evaluation")
    score = json.loads(artifact.read_bytes("score.json"))
    same = inputs["controller"] == artifact.inputs["controller"] and score["episodes"] >= MIN_EPISODES
    return {name: score[name] for name in ("mean", "ci95", "episodes")} if same else None
