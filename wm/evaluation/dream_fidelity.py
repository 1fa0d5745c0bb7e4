"""How far the dream can be trusted: the same policies in the dream and in reality.

- Whether it ranks: dream against real return over the means of a search, from its first generation to its last.
- Whether it is alike: return and length of one policy's episodes, and the variance of every latent that C sees.
- How soon it goes astray: the error of dreams that follow that policy's real episodes, action by action.
Policies begin with the episode, in the dream a few steps later, and are cut at `max_steps`.
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stages import console
from stages.session import Session
from wm.dreams.env import DreamReturns, InitialStates, imagine
from wm.dreams.initial_states import early_initial_states, load_latents
from wm.episodes.frame_batches import held_out
from wm.episodes.latents import Latents
from wm.evaluation.baselines import rank_correlation, rank_interval
from wm.evaluation.prediction import fit_baselines, open_loop
from wm.pretrained import TrainedMdnRnn, build_controller
from wm.rollouts.loop import EpisodeJob, EpisodeResult
from wm.rollouts.players import LatentTrajectory, PolicySpec, encode_rollouts, play_jobs, split_jobs
from wm.rollouts.workers import Workers
from wm.seeding import episode_seed, generator
from wm.settings import DreamSettings
from wm.training.precision import pick

REAL_EPISODES = 4  # of each policy
SEEN = 8  # real episodes that are looked at latent by latent


@dataclass(frozen=True)
class Policies:
    """Whom to compare: `means` (N, parameters) and what they are called, and the player whose parameters are `ours`."""

    player: PolicySpec
    means: NDArray[np.float32]
    generations: list[int]
    called: str


def measure(session: Session, settings: DreamSettings, mdnrnn: TrainedMdnRnn, policies: Policies) -> dict[str, Any]:
    """Everything above, by name."""
    latents = load_latents(session, mdnrnn)
    starts = early_initial_states(latents, mdnrnn)
    ours = np.array(policies.player.parameters, np.float32)[None]
    dreamt = _dream(session, settings, mdnrnn, policies.player, policies.means, starts)
    alone = _dream(session, settings, mdnrnn, policies.player, ours, starts)
    with session.open_workers() as workers:
        played = _play(session, settings, workers, policies.player, np.concatenate([policies.means, ours]))
        seen = _see(session, settings, workers, policies.player)
    real = np.array([np.mean([outcome.episode_return for outcome in some]) for some in played[:-1]])
    dream = dreamt.returns.reshape(len(policies.means), -1).mean(axis=1)
    own = _latents(seen, latents)
    guesses = fit_baselines(latents, held_out(latents.seeds, 0.1))
    variance = own.means.astype(np.float64).var(axis=0)
    shown = variance > 0.01 * variance.max()  # a latent that hardly moves says nothing
    return {
        "policies": policies.called,
        "generations": policies.generations,
        "real": real.tolist(),
        "dream": dream.tolist(),
        **_agreement(dream, real, session.seed),
        "real_returns": [outcome.episode_return for outcome in played[-1]],
        "dream_returns": alone.returns.tolist(),
        "real_lengths": [outcome.length for outcome in played[-1]],
        "dream_lengths": alone.lengths.tolist(),
        "real_ended": float(np.mean([outcome.terminated for outcome in played[-1]])),
        "dream_ended": float(alone.ended.mean()),
        "z_variance": {"dream": alone.z_var[shown].tolist(), "real": variance[shown].tolist()},
        "open_loop": open_loop(mdnrnn.model, guesses, own, np.ones(len(own.ends), bool)),
    }


def _agreement(dream: NDArray[np.float64], real: NDArray[np.float64], seed: int) -> dict[str, Any]:
    """Spearman's rho with its interval, over all policies and over the last third of them."""
    found: dict[str, Any] = {}
    for name, first in (("rho", 0), ("rho_last_third", len(dream) - len(dream) // 3)):
        some = dream[first:], real[first:]
        found[name] = rank_correlation(*some) if len(some[0]) > 2 else None
        found[f"{name}_ci95"] = rank_interval(*some, generator(seed, name)) if found[name] is not None else None
    return found


def _dream(
    session: Session,
    settings: DreamSettings,
    mdnrnn: TrainedMdnRnn,
    player: PolicySpec,
    policies: NDArray[np.float32],
    starts: InitialStates,
) -> DreamReturns:
    """`dreams` of every policy, all from the same places."""
    rows = generator(session.seed, "fidelity").integers(0, len(starts.z), settings.dreams)
    return imagine(
        mdnrnn.model,
        build_controller(mdnrnn, player.form, player.env),
        torch.from_numpy(np.repeat(policies, settings.dreams, axis=0)),
        starts.take(np.tile(rows, len(policies))),
        settings.temperature,
        settings.max_steps,
        session.seed, "fidelity",
        dtype=pick("auto", torch.device("cpu")).dtype,
    )  # fmt: skip


def _play(
    session: Session, settings: DreamSettings, workers: Workers, player: PolicySpec, policies: NDArray[np.float32]
) -> list[list[EpisodeResult]]:
    """Real episodes of every policy, on the same seeds; of the last one, ours, as many as it dreams."""
    counts = [REAL_EPISODES] * (len(policies) - 1) + [settings.dreams]
    seeds = [episode_seed("validation", session.seed, "fidelity", number) for number in range(max(counts))]
    addresses = [(policy, episode) for policy, count in enumerate(counts) for episode in range(count)]
    jobs = [EpisodeJob(key, seeds[episode], policy) for key, (policy, episode) in enumerate(addresses)]
    tasks = [(player, policies, share, settings.max_steps) for share in split_jobs(jobs, workers.count * 4)]
    found: dict[int, EpisodeResult] = {}
    with console.progress(f"dream {session.env}: in reality", len(jobs), "episodes") as progress:
        for _, outcomes in workers.map(play_jobs, tasks):
            found |= {outcome.key: outcome for outcome in outcomes}
            progress.update(len(found))
    split = np.cumsum([0, *counts])
    return [[found[key] for key in range(*span)] for span in itertools.pairwise(split)]


def _see(session: Session, settings: DreamSettings, workers: Workers, player: PolicySpec) -> list[LatentTrajectory]:
    jobs = [EpisodeJob(number, episode_seed("validation", session.seed, "seen", number)) for number in range(SEEN)]
    tasks = [(player, [job], settings.max_steps) for job in jobs]
    return [seen for _, found in sorted(workers.map(encode_rollouts, tasks)) for seen in found]


def _latents(seen: list[LatentTrajectory], like: Latents) -> Latents:
    """Episodes as C saw them, as latents without variance."""
    means = np.concatenate([episode.means for episode in seen])
    return replace(
        like,
        means=means,
        logvars=np.full_like(means, -np.inf),
        actions=np.concatenate([episode.actions for episode in seen]),
        rewards=np.concatenate([episode.rewards for episode in seen]),
        ends=np.cumsum([len(episode.means) for episode in seen]),
        terminated=np.array([episode.terminated for episode in seen]),
        seeds=np.zeros(len(seen), np.int64),
    )
