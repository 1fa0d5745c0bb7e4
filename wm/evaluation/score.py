"""Scores on test episodes in the unmodified environment, and the facts that each is quoted with."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wm.artifacts.runs import Artifact
from wm.artifacts.workspace import Workspace
from wm.envs.known_envs import NO_STICKY_PROTOCOL
from wm.envs.observation import OBSERVATIONS
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import read_root
from wm.errors import MissingInput, UsageProblem
from wm.evaluation.episode_log import EpisodeLog
from wm.masks import describe_mask
from wm.pretrained import is_dreamer
from wm.rollouts.loop import EpisodeJob, EpisodeResult
from wm.rollouts.players import (
    DreamerSpec,
    RandomSpec,
    Spec,
    evaluation_jobs,
    map_playing,
    play_jobs,
    policy_spec,
    split_jobs,
)
from wm.rollouts.workers import open_workers
from wm.run_models import find_dreamer, load_all
from wm.runtime import Runtime
from wm.stats import Score

MIN_EPISODES = 100  # a score of fewer is a preview
PORTION = 8  # episodes of a task, so that progress is reported


@dataclass(frozen=True)
class EvaluatedAgent:
    """An agent with its policy in the unmodified environment. `kind` is vmc, dreamer or random, `env` the environment
    of its training, `inputs` the fingerprints its score depends on, `facts` what is recorded with the score."""

    kind: str
    spec: Spec
    env: EnvConfig
    inputs: dict[str, str]
    facts: dict[str, Any]


def open_agent(workspace: Workspace, name: str, max_steps: int = 0, sticky: bool = True) -> EvaluatedAgent:
    """The controller or Dreamer of this name, or the random policy, in episodes of at most `max_steps` actions (0: of
    the limit in training), in Atari with `sticky` actions or without. Raises MissingInput if it is not trained."""
    if name == "random":
        env = EnvConfig(workspace.env, max_steps=_recorded_limit(workspace))
        return random_agent(_played(env, max_steps, sticky))
    opened = _dreamer if is_dreamer(workspace.run / name) else _controller
    return opened(workspace, name, max_steps, sticky)


def _recorded_limit(workspace: Workspace) -> int:
    """The limit of the environment's dataset in steps without repeated actions; 0 without one."""
    try:
        env = EnvConfig.of_recipe(read_root(workspace.datasets[0]))
    except MissingInput:
        # A run of another machine may lack its dataset.
        return 0
    return env.max_steps * env.action_repeat


def _played(env: EnvConfig, max_steps: int, sticky: bool) -> EnvConfig:
    return replace(env, max_steps=env.shorter(max_steps), sticky=sticky)


def random_agent(env: EnvConfig) -> EvaluatedAgent:
    """The random policy."""
    return EvaluatedAgent("random", RandomSpec(env), env, {}, {"protocol": protocol_of(env)})


def _controller(workspace: Workspace, name: str, max_steps: int, sticky: bool) -> EvaluatedAgent:
    vae, mdnrnn, controller = load_all(workspace, name)
    env = _played(vae.env, max_steps, sticky)
    search = controller.artifact.metrics
    # V and M may have seen other numbers of episodes; the larger number includes the other.
    collected = max(_collected_steps(trained.artifact.metrics, vae.env) for trained in (vae, mdnrnn))
    seconds = vae.artifact.wall_seconds + mdnrnn.artifact.wall_seconds
    return EvaluatedAgent(
        "vmc",
        policy_spec(vae, mdnrnn, controller.config, controller.parameters, _unmodified(env)),
        env,
        {"controller": controller.artifact.fingerprint},
        {
            "env_steps": search["env_steps"] + search.get("env_steps_before", 0) + collected,
            "protocol": protocol_of(env) + _edited(controller.artifact, env),
            "memory": controller.config.memory,
            "training_wall_seconds": round(seconds + search["seconds"] + search.get("seconds_before", 0.0), 1),
        },
    )


def _dreamer(workspace: Workspace, name: str, max_steps: int, sticky: bool) -> EvaluatedAgent:
    dreamer = find_dreamer(workspace, name)
    artifact, env = dreamer.artifact, _played(dreamer.env, max_steps, sticky)
    metrics = artifact.metrics
    if metrics.get("actor_updates", 1) == 0:
        raise UsageProblem(
            f"{artifact.folder} has an actor that was never trained, which plays at random; train a Dreamer with more "
            f"--steps, or look at this one's world model with `{workspace.command('dream')} --agent {name}`."
        )
    return EvaluatedAgent(
        "dreamer",
        DreamerSpec(_unmodified(env), artifact.folder, artifact.fingerprint),
        env,
        {"dreamer": artifact.fingerprint},
        {
            "env_steps": sum(metrics.get(name, 0) for name in ("env_steps", "validation_steps", "collected_steps")),
            "protocol": protocol_of(env) + ", likeliest actions" + _edited(artifact, env),
            "training_wall_seconds": round(artifact.wall_seconds, 1),
        },
    )


def _edited(trained: Artifact, env: EnvConfig) -> str:
    """What a protocol adds where files of the environment are not those of the training."""
    edited = env.code.edited_since(trained.inputs)
    return f", our agent was trained before {edited} was edited" if edited else ""


def _collected_steps(metrics: dict[str, Any], env: EnvConfig) -> int:
    """Environment steps of the episodes that V or M was trained on. Earlier artifacts have their rows only."""
    return int(metrics.get("collected_steps", metrics["rows"] * env.action_repeat))


def _unmodified(env: EnvConfig) -> EnvConfig:
    """The environment as gymnasium renders it, whatever rendered the training frames."""
    return replace(env, render="gymnasium")


def score_agent(
    runtime: Runtime, agent: EvaluatedAgent, env_name: str, episodes: int, label: str, folder: Path | None = None
) -> dict[str, Any]:
    """Play the test episodes. Returns the score, its returns, and the agent's facts. In the `folder` of an unfinished
    artifact finished episodes are recorded, and none is played again after a kill."""
    results = _play(runtime, agent.spec, evaluation_jobs(episodes), label, EpisodeLog(folder))
    score = Score.of(np.array([result.episode_return for result in results]))
    return {
        "env": env_name,
        "mean": score.mean,
        "ci95": score.ci95,
        "episodes": score.episodes,
        "preview": episodes < MIN_EPISODES,
        "mean_length": float(np.mean([result.env_steps for result in results])),
        "returns": [result.episode_return for result in results],
        "agent": agent.kind,
        **agent.facts,
        "protocol": agent.facts["protocol"] + _without_chance(agent.env, results),
    }


def _without_chance(env: EnvConfig, results: list[EpisodeResult]) -> str:
    """What a protocol adds where no-ops decide nothing: in Breakout the ball waits for the serve."""
    games = {(result.episode_return, result.env_steps) for result in results}
    return ", all episodes are the same game" if not env.sticky and len(games) == 1 else ""


def _play(runtime: Runtime, spec: Spec, jobs: list[EpisodeJob], label: str, log: EpisodeLog) -> list[EpisodeResult]:
    missing = log.missing(jobs)
    done = len(jobs) - len(missing)
    if 0 < done < len(jobs):
        runtime.log(f"{label}: resumes after {done} episodes")
    with open_workers(runtime) as workers, runtime.progress(label, len(jobs), "episodes", done) as progress:
        tasks = [(spec, None, portion) for portion in _portions(missing, workers.count)]
        for _, portion in map_playing(workers, play_jobs, tasks):
            log.add(portion)
            done += len(portion)
            progress.update(done)
    log.remove()
    return log.results(jobs)


def _portions(jobs: list[EpisodeJob], workers: int) -> Iterator[list[EpisodeJob]]:
    for share in split_jobs(jobs, workers):
        for start in range(0, len(share), PORTION):
            yield share[start : start + PORTION]


def protocol_of(env: EnvConfig) -> str:
    """How the environment is played, in words that a score is quoted with."""
    spec = env.spec()
    notes = [f"gymnasium {spec.env_id} unmodified", spec.protocol if env.sticky else NO_STICKY_PROTOCOL]
    if spec.fire_action is not None:
        notes.append("our agent presses FIRE after a reset and a lost life")
    if OBSERVATIONS[env.observation]:
        notes.append(f"our agent sees {OBSERVATIONS[env.observation]}")
    if view := describe_mask(env.mask):
        notes.append(f"our agent sees {view}")
    if env.action_repeat > 1:
        notes.append(f"our agent repeats each action for {env.action_repeat} steps")
    if env.max_steps:
        notes.append(f"every episode is truncated after {env.max_steps} actions")
    if env.render == "fast":
        notes.append("trained on --render fast")
    return ", ".join(note for note in notes if note)
