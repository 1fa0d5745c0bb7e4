"""Scores of any policy in the real environment, on the test episodes of `wm evaluate`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.arguments import whole
from wm.artifacts.workspace import Workspace
from wm.errors import UsageProblem
from wm.evaluation.score import MIN_EPISODES, open_agent, score_agent
from wm.rollouts.players import evaluation_jobs
from wm.runtime import Runtime, or_default
from wm.stats import Score
from wm.world.real_env import RealEnv

Policy = Callable[[NDArray[Any]], Any]


@dataclass(frozen=True)
class Evaluation:
    """A policy's `score`, the mean return with its 95 % interval; the `returns` (N,) of the test episodes, and how the
    environment was played (`protocol`)."""

    score: Score
    returns: NDArray[np.float64]
    protocol: str

    @property
    def preview(self) -> bool:
        """Whether the episodes are too few for the score to be quoted."""
        return self.score.episodes < MIN_EPISODES

    def __str__(self) -> str:
        preview = ", a preview" if self.preview else ""
        return f"return {self.score} over {self.score.episodes} test episodes{preview} ({self.protocol})"


def evaluate_agent(
    workspace: Workspace, agent: str, episodes: int, runtime: Runtime | None, max_steps: int = 0
) -> Evaluation:
    """As `wm evaluate` scores a controller or the random policy, in episodes of at most `max_steps` actions (0: of the
    limit in training, which for the random policy the dataset has)."""
    episodes = _require_episodes(episodes)
    opened = open_agent(workspace, agent, max_steps)
    metrics = score_agent(or_default(runtime), opened, workspace.env, episodes, f"evaluate {workspace.env}")
    returns = np.array(metrics["returns"])
    return Evaluation(Score.of(returns), returns, metrics["protocol"])


def evaluate_policy(env: RealEnv, policy: Any, episodes: int, protocol: str, runtime: Runtime | None) -> Evaluation:
    """The same for a function of observations, or for an object whose `predict` returns an action first."""
    episodes = _require_episodes(episodes)
    act, runtime = _function_of(policy), or_default(runtime)
    returns = []
    with runtime.progress(f"evaluate {protocol.split(',')[0]}", episodes, "episodes") as progress:
        for job in evaluation_jobs(episodes):
            observation, _ = env.reset(seed=job.seed)
            total, over = 0.0, False
            while not over:
                runtime.raise_if_stopped()
                observation, reward, terminated, truncated, _ = env.step(act(observation))
                total, over = total + reward, terminated or truncated
            returns.append(total)
            progress.update(len(returns))
    scores = np.array(returns)
    return Evaluation(Score.of(scores), scores, protocol)


def _function_of(policy: Any) -> Policy:
    """Observations -> actions; of a model of stable-baselines3 the likeliest ones."""
    if hasattr(policy, "predict"):
        return lambda observation: policy.predict(observation, deterministic=True)[0]
    if callable(policy):
        return policy
    raise UsageProblem(
        f"policy is a {type(policy).__name__}; expected a function of an observation, an object with `predict`, "
        "'random', or None for C."
    )


def _require_episodes(episodes: int) -> int:
    return whole("episodes", episodes, 2, ", for an interval")
