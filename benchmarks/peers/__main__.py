"""One row of docs/results/peers.json: a learner's curve over CPU minutes and steps, and its scores at the cuts.

    python -m benchmarks.peers CartPole sb3-ppo-pixels --seed 1 --minutes 10
    python -m benchmarks.peers Pong dream --run runs/Pong.round20

Others' learners need the extra `sb3`. Work stays in build/peers, so a killed command resumes, PPO from the policy of
its last minute, DQN from the start. Ours runs `wm curriculum` to its end, or reads the finished run that --run names;
there a learner on latents also takes its V.
"""

import argparse
import json
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import runs
from benchmarks.peers.settings import CUTS, METHODS, OURS, SOURCE
from wm import extras
from wm.artifacts import durable
from wm.artifacts.provenance import describe_program
from wm.errors import WmError
from wm.evaluation.score import MIN_EPISODES
from wm.rollouts.loop import play
from wm.rollouts.players import NUM_ENVS, evaluation_jobs, play_jobs
from wm.stats import Score

ROWS, BUILD = runs.ROOT / "docs" / "results" / "peers.json", runs.ROOT / "build" / "peers"
KEY = ("env", "method", "seed")  # a new row replaces the one with the same
_FACTS = ("commit", "versions", "python", "machine")


def cuts_until(minutes: float) -> list[float]:
    """The cuts of a training of so many minutes: those of CUTS that it reaches, or its end."""
    return [cut for cut in CUTS if cut <= minutes] or [minutes]


def score(results: list[Any]) -> dict[str, Any]:
    """Of the test episodes."""
    tested = Score.of(np.array([result.episode_return for result in results]))
    return {"mean": round(tested.mean, 2), "ci95": round(tested.ci95, 2), "episodes": tested.episodes}


def ours(env: str, method: str, seed: int, cuts: list[float], run: Path | None, episodes: int) -> dict[str, Any]:
    """The row of one of our methods."""
    run = run or runs.train_ours(BUILD / f"{env}-{method}-{seed}", env, method, seed)
    rounds, clock = runs.open_rounds(run), runs.clock_of(run)
    tested = list[dict[str, Any]]()
    for cut in cuts:
        policy = runs.policy_at(env, rounds, clock, cut)
        if policy is None:
            tested.append({"minutes": cut})
            continue
        cost = {"minutes": cut, "spent": round(policy.minutes, 2), "env_steps": policy.env_steps}
        same = next((before for before in tested if before.get("env_steps") == policy.env_steps), policy.score)
        known = {name: same[name] for name in ("mean", "ci95", "episodes")} if same else None
        tested.append(cost | (known or score(play_jobs(policy.spec, None, evaluation_jobs(episodes)))))
    last = rounds[-1].controller
    origin = last.manifest["provenance"]
    facts = {name: origin[name] for name in _FACTS} | {"command": origin["command"]}
    seed = last.settings["seed"]
    return {"env": env, "method": method, "seed": seed, "clock": clock.name, "curve": runs.curve(rounds, clock),
            "cuts": tested, **facts}  # fmt: skip


def peer(env: str, method: str, seed: int, cuts: list[float], run: Path | None, episodes: int) -> dict[str, Any]:
    """The row of one of others' learners."""
    extras.require("sb3", f"{method}")
    from benchmarks.peers.sights import open_sight
    from benchmarks.peers.training import PeerAgent, load_policy, train

    folder = BUILD / f"{env}-{method}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    vae, before, clock = None, (0.0, 0), "cpu"
    if method.endswith("latents"):
        run = run or runs.train_vae(BUILD / f"{env}-ppo-{seed}", env, seed)
        vae, before, clock = run / "vae", runs.vae_cost(run), runs.clock_of(run).name
    learning = [cut for cut in cuts if 60 * cut > before[0]]
    progress = train(folder, env, method, seed, learning, vae, before)
    tested: list[dict[str, Any]] = [{"minutes": cut} for cut in cuts if cut not in learning]
    for cut in learning:
        checkpoint = progress["cuts"][str(cut)]
        done = folder / f"{checkpoint['policy'].removesuffix('.zip')}-{episodes}.json"
        if not done.exists():
            sight = open_sight(method, env, NUM_ENVS, vae)
            envs = [replace(sight.env, render="gymnasium").make() for _ in range(NUM_ENVS)]
            agent = PeerAgent(load_policy(folder / checkpoint["policy"], method), sight, NUM_ENVS)
            durable.write_json(done, score(list(play(agent, envs, evaluation_jobs(episodes)))))
        spent = {"minutes": cut, "spent": round(checkpoint["spent"] / 60, 2), "env_steps": checkpoint["env_steps"]}
        tested.append(spent | json.loads(done.read_text()))
    facts = {name: value for name, value in describe_program().items() if name in _FACTS}
    facts["versions"]["stable-baselines3"] = version("stable-baselines3")
    command = f"python -m benchmarks.peers {env} {method} --seed {seed} --minutes {cuts[-1]}"
    return {"env": env, "method": method, "seed": seed, "clock": clock, "curve": progress["curve"], "cuts": tested,
            "command": command, "settings": SOURCE, **facts}  # fmt: skip


def add(row: dict[str, Any], path: Path) -> None:
    """Put a row among the others, as one replacement of the file."""
    rows = json.loads(path.read_text()) if path.exists() else []
    rows = [old for old in rows if any(old[name] != row[name] for name in KEY)] + [row]
    durable.write_json(path, sorted(rows, key=lambda one: (one["env"], METHODS.index(one["method"]), one["seed"])))


def main(arguments: list[str] | None = None) -> None:
    words = argparse.ArgumentParser("python -m benchmarks.peers", description=__doc__.splitlines()[0])
    words.add_argument("env")
    words.add_argument("method", choices=METHODS)
    words.add_argument("--seed", type=int, default=0, help="the training seed; of a run that --run names, its own")
    words.add_argument("--minutes", type=float, default=CUTS[-1], help="CPU minutes of the training")
    words.add_argument("--run", type=Path, help="a finished run of ours, its last round")
    words.add_argument("--episodes", type=int, default=MIN_EPISODES, help="test episodes at a cut")
    words.add_argument("--rows", type=Path, default=ROWS, help="the JSON file")
    options = words.parse_args(arguments)
    make = ours if options.method in OURS else peer
    minutes = int(options.minutes) if options.minutes == int(options.minutes) else options.minutes
    row = make(options.env, options.method, options.seed, cuts_until(minutes), options.run, options.episodes)
    add(row, options.rows)
    print(json.dumps({name: row[name] for name in (*KEY, "clock", "cuts")}))


if __name__ == "__main__":
    try:
        main()
    except WmError as error:
        print(f"peers: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
