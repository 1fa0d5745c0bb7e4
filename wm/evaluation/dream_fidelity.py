"""Dream fidelity: the same policies in the dream and in the real environment.

- Rank correlation of dream and real returns, over the means of a search from its first generation to its last.
- Returns and lengths of one policy's episodes, and the variance of every latent in them.
- Open-loop error: dreams that are given the actions of that policy's real episodes.

Dreams start a few steps into real episodes. Dreams and episodes are truncated after `max_steps`. Where a lost life ends
M's dreams, it ends the real episodes, too.
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.dreams.env import InitialStates
from wm.dreams.initial_states import early_initial_states
from wm.dreams.rollout import DreamReturns, rollout_dreams
from wm.episodes.latents import Latents
from wm.evaluation.event_rates import judge_events
from wm.evaluation.open_loop import open_loop_errors
from wm.evaluation.prediction import fit_baselines
from wm.models.controller import ControllerConfig, pick_head
from wm.pretrained import TrainedController, TrainedMdnRnn, TrainedVae, build_controller
from wm.rollouts.loop import EpisodeJob, EpisodeResult
from wm.rollouts.players import (
    LatentTrajectory,
    PolicySpec,
    encode_rollouts,
    map_playing,
    play_jobs,
    play_tasks,
    policy_spec,
)
from wm.rollouts.workers import Workers, open_workers
from wm.runtime import Runtime
from wm.seeding import episode_seed, generator
from wm.stats import rank_correlation, rank_correlation_interval
from wm.training.precision import pick

# The interval of a rank correlation of 32 pairs is about 0.6 wide.
MEANS = 32  # of the search, equally spaced, whose returns are compared
# More means tell more than more episodes of each.
REAL_EPISODES = 4  # of each mean
ENCODED_EPISODES = 8  # real episodes whose latents are compared
STILL = 0.01  # of the largest variance: a latent that varies less is left out


@dataclass(frozen=True)
class Policies:
    """The policies to compare: `means` (N, parameters) with their generations, and `policy`, whose own parameters are
    compared episode by episode. `description` says what the means are."""

    policy: PolicySpec
    means: NDArray[np.float32]
    generations: list[int]
    description: str


def policies_to_compare(
    vae: TrainedVae, mdnrnn: TrainedMdnRnn, controller: TrainedController | None, seed: int
) -> Policies:
    """The means of the search that evolved C, the policies along its training by policy gradient, or random linear
    policies without a C."""
    if controller is not None:
        # Evenly over the search, as dreams and reality agree more easily where policies differ much.
        rows = np.unique(np.linspace(0, len(controller.means) - 1, MEANS).round().astype(int))
        generations = [int(controller.artifact.metrics["means"][row]) for row in rows]
        spec = policy_spec(vae, mdnrnn, controller.config, controller.parameters)
        by_gradient = controller.artifact.settings["algo"] == "ppo"
        description = "those along its training" if by_gradient else "the controllers of its search"
        return Policies(spec, controller.means[rows], generations, description)
    config = ControllerConfig(pick_head("auto", mdnrnn.space, vae.env.spec().head))
    shape = MEANS, build_controller(mdnrnn, config, vae.env).parameters
    means = generator(seed, "dream").standard_normal(shape).astype(np.float32)
    return Policies(policy_spec(vae, mdnrnn, config, means[0]), means, [0] * len(means), "random linear policies")


@dataclass(frozen=True)
class ComparisonProtocol:
    """How policies are compared: `dreams` with each, at this temperature, and real episodes, all of at most `max_steps`
    and from this seed. `one_life` says whether M took lost lives for ends."""

    dreams: int
    temperature: float
    max_steps: int
    seed: int
    one_life: bool


def most_real_episodes(dreams: int) -> int:
    """The real episodes of a comparison with so many dreams of each policy, at most, without those that are encoded."""
    return MEANS * REAL_EPISODES + dreams


def measure_fidelity(
    runtime: Runtime,
    protocol: ComparisonProtocol,
    mdnrnn: TrainedMdnRnn,
    latents: Latents,
    policies: Policies,
    label: str = "dream",
) -> dict[str, Any]:
    """All figures by name. `latents` are those M was trained on."""
    initial = early_initial_states(latents, mdnrnn)
    policy, seed = policies.policy, protocol.seed
    protocol = replace(protocol, max_steps=policy.env.shorter(protocol.max_steps))
    parameters = np.array(policy.parameters, np.float32)[None]
    dreams = _dream(protocol, mdnrnn, policy, policies.means, initial)
    policy_dreams = _dream(protocol, mdnrnn, policy, parameters, initial)
    with open_workers(runtime) as workers:
        played = np.concatenate([policies.means, parameters])
        episodes = _play(runtime, protocol, workers, policy, played, label)
        trajectories = _encode(protocol, workers, policy)
    real = np.array([np.mean([result.episode_return for result in results]) for results in episodes[:-1]])
    dream = dreams.returns.reshape(len(policies.means), -1).mean(axis=1)
    encoded = _as_latents(trajectories, latents)
    # Baselines see what M has seen, without its held-out episodes.
    baselines = fit_baselines(latents, mdnrnn.held_out(latents))
    variance = encoded.means.astype(np.float64).var(axis=0)
    moving = variance > STILL * variance.max()
    return {
        "policies": policies.description,
        "generations": policies.generations,
        "real": real.tolist(),
        "dream": dream.tolist(),
        **_rank_correlations(dream, real, seed),
        "real_returns": [result.episode_return for result in episodes[-1]],
        "dream_returns": policy_dreams.returns.tolist(),
        "real_lengths": [result.length for result in episodes[-1]],
        "dream_lengths": policy_dreams.lengths.tolist(),
        "real_ended": float(np.mean([result.terminated for result in episodes[-1]])),
        "dream_ended": float(policy_dreams.terminated.mean()),
        "z_variance": {"dream": policy_dreams.z_var[moving].tolist(), "real": variance[moving].tolist()},
        "open_loop": open_loop_errors(mdnrnn.model, baselines, encoded, np.ones(len(encoded.ends), bool)),
        "events": judge_events(mdnrnn.model, encoded, np.ones(len(encoded.ends), bool)),
    }


def _rank_correlations(dream: NDArray[np.float64], real: NDArray[np.float64], seed: int) -> dict[str, Any]:
    """Spearman's rho with its interval, over all policies and over the last third of them."""
    figures: dict[str, Any] = {}
    for name, first in (("rho", 0), ("rho_last_third", len(dream) - len(dream) // 3)):
        pairs = dream[first:], real[first:]
        # Of two pairs a rank correlation is always 1 or -1.
        rho = rank_correlation(*pairs) if len(pairs[0]) > 2 else None
        figures[name] = rho
        figures[f"{name}_ci95"] = None if rho is None else rank_correlation_interval(*pairs, generator(seed, name))
    return figures


def _dream(
    protocol: ComparisonProtocol,
    mdnrnn: TrainedMdnRnn,
    policy: PolicySpec,
    parameters: NDArray[np.float32],
    initial: InitialStates,
) -> DreamReturns:
    """Dreams with each row of parameters, from the same initial states."""
    rows = generator(protocol.seed, "fidelity").integers(0, len(initial), protocol.dreams)
    return rollout_dreams(
        mdnrnn.model,
        build_controller(mdnrnn, policy.controller, policy.env),
        torch.from_numpy(np.repeat(parameters, protocol.dreams, axis=0)),
        initial.take(np.tile(rows, len(parameters))),
        protocol.temperature,
        protocol.max_steps,
        protocol.seed, "fidelity",
        dtype=pick("auto", torch.device("cpu")).dtype,
    )  # fmt: skip


def _play(
    runtime: Runtime,
    protocol: ComparisonProtocol,
    workers: Workers,
    policy: PolicySpec,
    parameters: NDArray[np.float32],
    label: str,
) -> list[list[EpisodeResult]]:
    """Real episodes with each row of parameters, on the same seeds; with the last row as many as it has dreams."""
    counts = [REAL_EPISODES] * (len(parameters) - 1) + [protocol.dreams]
    seeds = [episode_seed("validation", protocol.seed, "fidelity", number) for number in range(max(counts))]
    # The same seeds for every policy: they differ then by what they do.
    pairs = [(row, episode) for row, count in enumerate(counts) for episode in range(count)]
    jobs = [EpisodeJob(key, seeds[episode], row, protocol.one_life) for key, (row, episode) in enumerate(pairs)]
    tasks = play_tasks(workers, policy, parameters, jobs, 4, protocol.max_steps)
    results: dict[int, EpisodeResult] = {}
    with runtime.progress(f"{label}: real episodes", len(jobs), "episodes") as progress:
        for _, portion in map_playing(workers, play_jobs, tasks):
            results |= {result.key: result for result in portion}
            progress.update(len(results))
    bounds = np.cumsum([0, *counts])
    return [[results[key] for key in range(*span)] for span in itertools.pairwise(bounds)]


def _encode(protocol: ComparisonProtocol, workers: Workers, policy: PolicySpec) -> list[LatentTrajectory]:
    """Real episodes with the policy's own parameters, encoded."""
    seeds = [episode_seed("validation", protocol.seed, "seen", number) for number in range(ENCODED_EPISODES)]
    jobs = [EpisodeJob(number, seed, one_life=protocol.one_life) for number, seed in enumerate(seeds)]
    tasks = [(policy, [job], protocol.max_steps) for job in jobs]
    results = sorted(map_playing(workers, encode_rollouts, tasks), key=lambda result: result[0])
    return [trajectory for _, trajectories in results for trajectory in trajectories]


def _as_latents(trajectories: list[LatentTrajectory], like: Latents) -> Latents:
    """The trajectories as latents without variance."""
    means = np.concatenate([episode.means for episode in trajectories])
    return replace(
        like,
        means=means,
        logvars=np.full_like(means, -np.inf),
        actions=np.concatenate([episode.actions for episode in trajectories]),
        rewards=np.concatenate([episode.rewards for episode in trajectories]),
        ends=np.cumsum([len(episode.means) for episode in trajectories]),
        terminated=np.array([episode.terminated for episode in trajectories]),
        seeds=np.zeros(len(trajectories), np.int64),
    )
