"""`wm evaluate`: honest scores on test seeds, in the unmodified environment."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stages import console
from stages.session import Session, check_name
from stages.stage import Plan, Result, made, up_to_date
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Run
from wm.envs.observation import OBSERVATIONS
from wm.envs.registry import EnvConfig
from wm.pretrained import (
    TrainedController,
    TrainedDreamer,
    TrainedMdnRnn,
    TrainedVae,
    find_dreamer,
    is_dreamer,
    load_all,
)
from wm.report.recording import film_episodes, show_episode
from wm.rollouts.loop import EpisodeJob, EpisodeResult
from wm.rollouts.players import (
    DreamerSpec,
    PolicySpec,
    evaluation_jobs,
    play_dreamer,
    play_jobs,
    play_random,
    split_jobs,
)
from wm.rollouts.workers import Workers, playing_memory
from wm.settings import EvaluateSettings
from wm.stats import Score

RECIPE = 1
MIN_EPISODES_FOR_A_SCORE = 100
SCORES = "score.json"


def _random_run(session: Session, settings: EvaluateSettings, env: EnvConfig) -> Run:
    chosen = {"episodes": settings.episodes, "agent": "random", "env": env.name, "action_space": env.action_space}
    return session.make_run("evaluation/random", "evaluation", RECIPE, chosen, {}, seeded=False)


def _controller_run(session: Session, settings: EvaluateSettings, controller: TrainedController) -> Run:
    inputs = {"controller": controller.artifact.fingerprint}
    name = "evaluation/" + check_name("--agent", settings.agent)
    return session.make_run(name, "evaluation", RECIPE, settings.result_settings(), inputs, seeded=False)


def _dreamer_run(session: Session, settings: EvaluateSettings, dreamer: TrainedDreamer) -> Run:
    inputs = {"dreamer": dreamer.artifact.fingerprint}
    name = "evaluation/" + check_name("--agent", settings.agent)
    return session.make_run(name, "evaluation", RECIPE, settings.result_settings(), inputs, seeded=False)


def _plan_run(session: Session, settings: EvaluateSettings) -> Run:
    if settings.agent == "random":
        return _random_run(session, settings, EnvConfig(session.env))
    if is_dreamer(session.run_path / settings.agent):
        return _dreamer_run(session, settings, find_dreamer(session.workspace, settings.agent))
    return _controller_run(session, settings, load_all(session.workspace, settings.agent)[2])


def plan(session: Session, settings: EvaluateSettings) -> Plan:
    """What `evaluate` would do."""
    run = _plan_run(session, settings)
    done = run.current() is not None
    workers = session.open_workers().count
    steps = EnvConfig(session.env).random_steps * settings.episodes
    what = "up to date" if done else f"{settings.episodes} test episodes, and as many of the random policy"
    span = (0.0, 0.0) if done else (steps / 1500 / workers, 2 * steps / 150 / workers)
    return Plan("evaluate", run.folder, what, 0 if done else 50_000, playing_memory(workers), span)


def evaluate(session: Session, settings: EvaluateSettings) -> Result:
    """Score an agent, and the random policy beside it, over test episodes used for nothing else; show and film it."""
    if settings.agent == "random":
        found = evaluate_random(session, settings, EnvConfig(session.env))
        return replace(found, table=_table(found.metrics))
    dreams = is_dreamer(session.run_path / settings.agent)

    def player() -> PolicySpec | DreamerSpec:
        if dreams:
            return dreamer_of(find_dreamer(session.workspace, settings.agent))
        return player_of(*load_all(session.workspace, settings.agent))

    if settings.visualize:
        show_episode(session, player(), evaluation_jobs(1)[0])
    found = evaluate_dreamer(session, settings) if dreams else evaluate_controller(session, settings)
    films: list[Path] = []
    if settings.record_video:
        films = film_episodes(session, settings, player(), evaluation_jobs(settings.record_video))
    return replace(found, table=_table(found.metrics), pictures=found.pictures + films)


def player_of(vae: TrainedVae, mdnrnn: TrainedMdnRnn, controller: TrainedController) -> PolicySpec:
    """The trained player in the environment as gymnasium draws it, whoever drew the frames of its training."""
    unmodified = replace(vae.env, render="gymnasium")
    prints = vae.artifact.fingerprint + mdnrnn.artifact.fingerprint
    parameters = tuple(controller.parameters.tolist())
    return PolicySpec(unmodified, vae.artifact.folder, mdnrnn.artifact.folder, controller.config, prints, parameters)


def evaluate_controller(session: Session, settings: EvaluateSettings) -> Result:
    """V + M + C on the test episodes, after the random policy."""
    began = time.monotonic()
    vae, mdnrnn, controller = load_all(session.workspace, settings.agent)
    run = _controller_run(session, settings, controller)
    baseline = evaluate_random(session, settings, vae.env)
    if (current := run.current()) is not None:
        return up_to_date("evaluate", current, _summary(current))
    session.budget(run.folder).require(1_000_000, 0, "evaluation")
    player = player_of(vae, mdnrnn, controller)
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("evaluate", builder.restored, _summary(builder.restored), "restored")
        with session.open_workers() as workers:
            shares = split_jobs(evaluation_jobs(settings.episodes), workers.count)
            tasks = [(player, controller.parameters[None], part, 0) for share in shares for part in _portions(share)]
            outcomes = _gather(session, settings, "the controller", workers, play_jobs, tasks)
        found = controller.artifact.metrics
        metrics = _metrics(session, settings, outcomes, vae.env.action_repeat) | {
            "agent": "vmc",
            "random": {name: baseline.metrics[name] for name in ("mean", "ci95", "episodes")},
            "env_steps": found["env_steps"]
            + found.get("env_steps_before", 0)
            + max(trained.artifact.metrics["rows"] for trained in (vae, mdnrnn)) * vae.env.action_repeat,
            "protocol": protocol_of(vae.env),
            "memory": controller.config.memory,
            "training_wall_seconds": round(
                _wall(vae.artifact, mdnrnn.artifact) + found["seconds"] + found.get("seconds_before", 0.0), 1
            ),
        }
        durable.write_json(builder.folder / SCORES, metrics)
        artifact = builder.publish(metrics, session.provenance(began, vae.env))
    return made("evaluate", builder, artifact, _summary(artifact))


def dreamer_of(trained: TrainedDreamer) -> DreamerSpec:
    """The Dreamer in the environment as gymnasium draws it."""
    env = replace(trained.env, render="gymnasium")
    return DreamerSpec(env, trained.artifact.folder, trained.artifact.fingerprint)


def evaluate_dreamer(session: Session, settings: EvaluateSettings) -> Result:
    """A Dreamer on the test episodes, after the random policy."""
    began = time.monotonic()
    trained = find_dreamer(session.workspace, settings.agent)
    run = _dreamer_run(session, settings, trained)
    baseline = evaluate_random(session, settings, trained.env)
    if (current := run.current()) is not None:
        return up_to_date("evaluate", current, _summary(current))
    session.budget(run.folder).require(1_000_000, 0, "evaluation")
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("evaluate", builder.restored, _summary(builder.restored), "restored")
        with session.open_workers() as workers:
            shares = split_jobs(evaluation_jobs(settings.episodes), workers.count)
            tasks = [(dreamer_of(trained), part) for share in shares for part in _portions(share)]
            outcomes = _gather(session, settings, "the Dreamer", workers, play_dreamer, tasks)
        metrics = _metrics(session, settings, outcomes) | {
            "agent": "dreamer",
            "random": {name: baseline.metrics[name] for name in ("mean", "ci95", "episodes")},
            "env_steps": trained.artifact.metrics["env_steps"],
            "protocol": protocol_of(trained.env) + ", likeliest actions",
            "training_wall_seconds": _wall(trained.artifact),
        }
        durable.write_json(builder.folder / SCORES, metrics)
        artifact = builder.publish(metrics, session.provenance(began, trained.env))
    return made("evaluate", builder, artifact, _summary(artifact))


def evaluate_random(session: Session, settings: EvaluateSettings, env: EnvConfig) -> Result:
    """The random policy on the same test episodes."""
    began = time.monotonic()
    run = _random_run(session, settings, env)
    if (current := run.current()) is not None:
        return up_to_date("evaluate", current, _summary(current))
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("evaluate", builder.restored, _summary(builder.restored), "restored")
        with session.open_workers() as workers:
            shares = split_jobs(evaluation_jobs(settings.episodes), workers.count * 5)
            tasks = [(env, share) for share in shares]
            outcomes = _gather(session, settings, "random", workers, play_random, tasks)
        metrics = _metrics(session, settings, outcomes) | {"agent": "random", "protocol": protocol_of(env)}
        durable.write_json(builder.folder / SCORES, metrics)
        artifact = builder.publish(metrics, session.provenance(began))
    return made("evaluate", builder, artifact, _summary(artifact))


def _portions(share: list[EpisodeJob], size: int = 8) -> list[list[EpisodeJob]]:
    return [share[start : start + size] for start in range(0, len(share), size)]


def _gather(
    session: Session, settings: EvaluateSettings, who: str, workers: Workers, function: Any, tasks: list[Any]
) -> list[EpisodeResult]:
    outcomes: list[EpisodeResult] = []
    with console.progress(f"evaluate {session.env} ({who})", settings.episodes, "episodes") as progress:
        for _, found in workers.map(function, tasks):
            outcomes += found
            progress.update(len(outcomes))
    return sorted(outcomes, key=lambda outcome: outcome.key)


def _metrics(
    session: Session, settings: EvaluateSettings, outcomes: list[EpisodeResult], action_repeat: int = 1
) -> dict[str, Any]:
    score = Score.of(np.array([outcome.episode_return for outcome in outcomes]))
    return {
        "env": session.env,
        "mean": score.mean,
        "ci95": score.ci95,
        "episodes": score.episodes,
        "preview": settings.episodes < MIN_EPISODES_FOR_A_SCORE,
        "mean_length": float(np.mean([outcome.length for outcome in outcomes])) * action_repeat,
        "returns": [outcome.episode_return for outcome in outcomes],
    }


def protocol_of(env: EnvConfig) -> str:
    """How the environment is played, in words that a score is quoted with."""
    spec = env.spec()
    notes = [f"gymnasium {spec.env_id} unmodified", spec.protocol]
    if spec.fire_action is not None:
        notes.append("our agent presses FIRE after a reset and a lost life")
    if OBSERVATIONS[env.observation]:
        notes.append(f"our agent sees {OBSERVATIONS[env.observation]}")
    if env.action_repeat > 1:
        notes.append(f"our agent holds each action for {env.action_repeat} steps")
    if env.render == "fast":
        notes.append("trained on --render fast")
    return ", ".join(note for note in notes if note)


def _wall(*artifacts: Artifact) -> float:
    return round(sum(artifact.manifest["provenance"]["wall_seconds"] for artifact in artifacts), 1)


def _table(found: dict[str, Any]) -> str:
    rows = [(found["agent"], found)]
    if "random" in found:
        rows.append(("random", found["random"]))
    preview = ", preview" if found["preview"] else ""
    cells = [[name, f"{row['mean']:.2f}", f"± {row['ci95']:.2f}", f"{row['episodes']}{preview}"] for name, row in rows]
    text = console.table(["agent", "mean return", "95 % interval", "test episodes"], cells)
    return f"{text}\nprotocol: {found['protocol']}"


def _summary(artifact: Artifact) -> str:
    found = artifact.metrics
    score = Score(found["mean"], found["ci95"], found["episodes"])
    text = f"return {score} over {score.episodes} test episodes"
    if "random" in found:
        baseline = found["random"]
        text += f"; random {Score(baseline['mean'], baseline['ci95'], baseline['episodes'])}"
    return text + (f" (preview, n={score.episodes})" if found["preview"] else "")
