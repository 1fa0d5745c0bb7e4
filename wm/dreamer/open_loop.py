"""Open-loop prediction: a Dreamer observes a few frames, then predicts frames and rewards from the actions alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.artifacts import durable
from wm.dreamer.updates import to_batch
from wm.episodes.replay import ReplayBatch, ReplayBuffer
from wm.models.dreamer.agent import Dreamer
from wm.models.dreamer.rssm import State
from wm.models.dreamer.world_model import Batch
from wm.pretrained import TrainedDreamer
from wm.report.dream_pictures import FPS
from wm.report.film_strip import animation, error_map, film_strip
from wm.rollouts.loop import EpisodeJob, Trajectory, record
from wm.rollouts.players import DreamerSpec, build_env, make_agent
from wm.runtime import Runtime
from wm.seeding import episode_seed, generator

CONTEXT, PREDICTED = 16, 120  # steps that are observed, and predicted steps of the animation
REPLAY_LENGTHS = ((8, 15), (2, 5))  # observed and predicted steps of a film strip; the second for short episodes
REPLAY_WINDOWS = 256  # windows of the replay that are compared for the film strip
COLUMNS = 8  # of a film strip
# Those of M's open loops (wm/evaluation/open_loop.py) but 30.
HORIZONS = (1, 5, 15, 50)
EPISODES, WINDOWS = 4, 32  # validation episodes of the comparison, and its windows in all of them


@dataclass(frozen=True)
class OpenLoop:
    """Metrics over all windows, and (N, S, S, C) real and predicted frames of the longest episode after `context`
    observed steps."""

    metrics: dict[str, Any]
    real: NDArray[np.uint8]
    predicted: NDArray[np.uint8]
    context: int

    def write(self, folder: Path) -> None:
        """Write the animation dream.gif and the film strip dream.png."""
        durable.write_bytes(folder / "dream.png", open_loop_strip(self.real, self.predicted, self.context))
        captions = [f"{step + 1} steps ahead" for step in range(len(self.real))]
        panels = [("real", self.real), ("predicted", self.predicted)]
        durable.write_bytes(folder / "dream.gif", animation(panels, captions, FPS))


@torch.inference_mode()
def predict(model: Dreamer, batch: Batch, context: int, noise: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features (B, T - context, F) and expected rewards of the steps after the first `context`, from their actions."""
    world = model.world_model
    embeds = world.encode(batch.frames[:, :context])
    states, _, _ = world.rssm.observe(embeds, batch.actions[:, :context], batch.first[:, :context], noise)
    state, steps = State(states.deter[:, -1], states.stoch[:, -1]), []
    for step in range(context, batch.first.shape[1]):
        state = world.rssm.imagine_step(state, batch.actions[:, step], noise)
        steps.append(state.features)
    features = torch.stack(steps, 1)
    return features, world.predict(features)[0]


@torch.inference_mode()
def replay_strip(model: Dreamer, buffer: ReplayBuffer) -> bytes | None:
    """A PNG of an open loop in the replay: real frames, predicted frames, error. None if no window lies within one
    episode."""
    for context, ahead in REPLAY_LENGTHS:
        steps = _moving_window(buffer, context + ahead)
        if steps is not None:
            batch = to_batch(steps, torch.from_numpy(steps.frames), torch.device("cpu"))
            features, _ = predict(model, batch, context, torch.Generator().manual_seed(0))
            predicted = model.world_model.decode(features[0]).numpy()
            return open_loop_strip(steps.frames[0, context:], predicted, context)
    return None


def _moving_window(buffer: ReplayBuffer, length: int) -> ReplayBatch | None:
    """A window within one episode: of a sample, the one whose stillest step changes the most pixels."""
    # A fixed seed: the strip shows the same window while the replay has it.
    random, most, best = generator(0, "open loop"), -1.0, None
    for _ in range(REPLAY_WINDOWS if buffer.windows(length).any() else 0):
        steps = buffer.sample(1, length, random)
        changed = (steps.frames[0, 1:] != steps.frames[0, :-1]).mean((1, 2, 3)).min()
        if changed > most and not steps.first[0, 1:].any():
            most, best = changed, steps
    return best


def open_loop_strip(real: NDArray[np.uint8], predicted: NDArray[np.uint8], context: int) -> bytes:
    """A PNG of real frames, predicted frames and their error, at equally spaced steps."""
    columns = np.unique(np.linspace(0, len(real) - 1, COLUMNS).round().astype(int))
    rows = [
        ("real", real[columns]),
        ("predicted", predicted[columns]),
        ("error x4", error_map(real[columns], predicted[columns])),
    ]
    captions = [f"{step + 1} ahead" for step in columns]
    return film_strip(rows, captions, f"Open-loop prediction from the real actions, after {context} observed steps")


def compare_open_loop(trained: TrainedDreamer, seed: int, max_steps: int, runtime: Runtime) -> OpenLoop:
    """Play validation episodes of up to `max_steps`, and compare open-loop predictions with them."""
    episodes = _play(trained, seed, max_steps, runtime)
    longest = max(episodes, key=lambda episode: len(episode.frames))
    # A quarter of the episode at most, so that something is left to predict.
    context = min(CONTEXT, max(len(longest.frames) // 4, 1))  # fewer for short episodes
    metrics = _errors(trained, episodes, context)
    batch = _window(trained, longest, 0, context + PREDICTED)
    features, _ = predict(trained.model, batch, context, torch.Generator().manual_seed(seed))
    predicted = trained.model.world_model.decode(features[0]).numpy()
    return OpenLoop(metrics, longest.frames[context : context + len(predicted)], predicted, context)


def _play(trained: TrainedDreamer, seed: int, max_steps: int, runtime: Runtime) -> list[Trajectory]:
    spec = DreamerSpec(trained.env, trained.artifact.folder, trained.artifact.fingerprint)
    agent, env, episodes = make_agent(spec, num_envs=1), build_env(spec), []
    for number in range(EPISODES):
        runtime.raise_if_stopped()
        job = EpisodeJob(number, episode_seed("validation", seed, "imagine", number))
        episodes.append(record(agent, env, job, agent.space.column, max_steps))
    return episodes


def _window(trained: TrainedDreamer, episode: Trajectory, start: int, count: int) -> Batch:
    """Rows of an episode as a batch of one window."""
    rows = slice(start, min(start + count, len(episode.frames)))
    actions = np.roll(trained.space.encode(episode.actions), 1, axis=0)[rows]
    rewards = np.roll(episode.rewards, 1)[rows]
    first = np.zeros(len(rewards), np.float32)
    first[0] = 1
    columns = (episode.frames[rows], actions, rewards, first, np.zeros_like(first))
    return Batch(*(torch.from_numpy(np.ascontiguousarray(column))[None] for column in columns))


@torch.inference_mode()
def _errors(trained: TrainedDreamer, episodes: list[Trajectory], context: int) -> dict[str, Any]:
    """Squared error a pixel (of 255) by horizon, of the model and of persistence (the last observed frame); and the
    correlation of predicted and real sums of rewards."""
    errors: dict[int, list[tuple[float, float]]] = {ahead: [] for ahead in HORIZONS}
    rewards: list[tuple[float, float]] = []
    for number, episode in enumerate(episodes):
        room = len(episode.frames) - context - 1
        for start in np.unique(np.linspace(0, room, WINDOWS // len(episodes)).astype(int)) if room > 0 else ():
            batch = _window(trained, episode, int(start), context + HORIZONS[-1])
            features, predicted = predict(trained.model, batch, context, torch.Generator().manual_seed(number))
            frames = trained.model.world_model.decode(features[0]).numpy().astype(float)
            real = batch.frames[0].numpy().astype(float)
            rewards.append((float(predicted.sum()), float(batch.rewards[0, context:].sum())))
            for ahead in HORIZONS:
                if ahead <= len(frames):
                    target = real[context + ahead - 1]
                    persistence = float(np.square(target - real[context - 1]).mean())
                    errors[ahead].append((float(np.square(target - frames[ahead - 1]).mean()), persistence))
    return {
        "open_loop": {str(ahead): _mean(pairs) for ahead, pairs in errors.items()},
        "reward_correlation": _correlation(np.array(rewards).reshape(-1, 2)),
    }


def _mean(pairs: list[tuple[float, float]]) -> dict[str, float] | None:
    if not pairs:
        return None
    dream, persistence = np.mean(pairs, axis=0).tolist()
    return {"dream": dream, "persistence": persistence, "windows": len(pairs)}


def _correlation(pairs: NDArray[np.float64]) -> float | None:
    """Pearson's; None for fewer than three pairs or a constant column."""
    # Two points always lie on a line.
    if len(pairs) < 3 or not np.ptp(pairs, axis=0).all():
        return None
    return float(np.corrcoef(pairs[:, 0], pairs[:, 1])[0, 1])


def format_errors(metrics: dict[str, Any]) -> str:
    """The errors by horizon and the correlation of rewards, in one sentence."""
    errors = [(ahead, metrics["open_loop"].get(str(ahead))) for ahead in HORIZONS]
    parts = [f"{ahead} ahead {e['dream']:.1f} ({e['persistence']:.1f})" for ahead, e in errors if e is not None]
    text = f"squared error a pixel (of persistence): {', '.join(parts) or 'episodes are too short'}"
    rho = metrics["reward_correlation"]
    return text if rho is None else f"{text}; predicted and real rewards correlate by {rho:.2f}"
