"""M's predictions compared with baselines: the figures at the end of `wm train-mdnrnn`.

All on held-out episodes, from their start, with the mean z that C observes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.episodes.latents import Latents
from wm.episodes.windows import WindowBatch, Windows
from wm.evaluation.baselines import Baselines, brier_score, calibration, common_reward, reward_recall
from wm.evaluation.event_rates import format_event_rates, judge_events
from wm.evaluation.linear_probe import fit_and_score
from wm.evaluation.open_loop import HORIZONS, OpenLoops, latent_errors, open_loops, position_errors, probe_of_others
from wm.models.mdnrnn.predictor import Predictor
from wm.stats import rank_correlation

MAX_ROWS = 20_000  # of held-out steps, and of training steps that baselines and probes are fitted on
# Sorted by length, eight a batch: few rows are then padding.
EPISODES_PER_BATCH = 8
PRECISION = 0.5  # at which the recall of rare rewards is measured

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Predictions:
    """M's predictions along real episodes: N steps with the row of each, its episode, and what M predicts of the next.
    `hidden` and `untrained_hidden` (N, H) are h before the step, as C observes it, of M and of an untrained M."""

    rows: NDArray[np.int64]
    episodes: NDArray[np.int64]
    nll: Array
    error: Array
    reward: Array
    end: Array
    hidden: Array
    untrained_hidden: Array


def evaluate_predictions(
    model: Predictor,
    untrained: Predictor,
    latents: Latents,
    validation: NDArray[np.bool_],
    velocities: Mapping[str, Array],
    positions: Mapping[str, Array],
) -> dict[str, Any]:
    """Figures by name; None where there are too few events. `validation` says which episodes are held out; without any,
    all are evaluated. `velocities` (rows,) are probed from [z, h], `positions` (rows,) from open-loop predictions; of
    several datasets, `newest` has those of the last one's episodes, the present policy's."""
    training = _predict(model, untrained, latents, ~validation)
    validation = validation if validation.any() else ~validation
    held_out = _predict(model, untrained, latents, validation)
    baselines = Baselines.fit(*_transitions(latents, training.rows))
    loops = list(open_loops(model, baselines, latents, validation))
    return {
        **_one_step(baselines, latents, held_out),
        "open_loop": latent_errors(latents, loops),
        **_positions(model, baselines, latents, validation, positions, loops),
        "events": judge_events(model, latents, validation),
        "reward": _reward(latents, training, held_out),
        "end": _end(latents, training, held_out),
        "velocity": _velocity(latents, velocities, training, held_out),
    }


def _positions(
    model: Predictor,
    baselines: Baselines,
    latents: Latents,
    validation: NDArray[np.bool_],
    positions: Mapping[str, Array],
    loops: Sequence[OpenLoops],
) -> dict[str, Any]:
    """The errors of positions on all held-out episodes, and on those of the newest of several datasets."""
    if (probe := probe_of_others(latents, positions, validation)) is None:
        return {"positions": {}}
    figures: dict[str, Any] = {"positions": position_errors(probe, latents, positions, validation, loops)}
    newest = validation & (np.arange(len(validation)) >= sum(latents.joined[:-1]))
    if len(latents.joined) > 1 and newest.any():
        own = list(open_loops(model, baselines, latents, newest))
        figures["newest"] = {"positions": position_errors(probe, latents, positions, newest, own)}
    return figures


def _one_step(baselines: Baselines, latents: Latents, held_out: Predictions) -> dict[str, float]:
    previous, current, actions, following = _transitions(latents, held_out.rows)
    nll = baselines.nll(previous, current, actions, following)
    linear = baselines.predict_linear(previous, current, actions)
    return {
        "nll": float(held_out.nll.mean()),
        **{f"nll_{name}": value for name, value in nll.items()},
        "error": float(held_out.error.mean()),
        "error_persistence": float(np.square(following - current).mean()),
        "error_mean": float(np.square(following - baselines.mean).mean()),
        "error_linear": float(np.square(following - linear).mean()),
    }


def _reward(latents: Latents, training: Predictions, held_out: Predictions) -> dict[str, float | None]:
    rewards = latents.rewards[held_out.rows]
    common = common_reward(latents.rewards[training.rows])
    recall = None
    if common is not None:
        recall = reward_recall(held_out.reward, rewards, held_out.episodes, common, PRECISION)
    return {"rank_correlation": rank_correlation(held_out.reward, rewards), "recall": recall}


def _end(latents: Latents, training: Predictions, held_out: Predictions) -> dict[str, Any]:
    ends = _terminations(latents)
    rate, observed = float(ends[training.rows].mean()), ends[held_out.rows]
    return {
        "brier": brier_score(held_out.end, observed),
        "brier_rate": brier_score(np.full(len(observed), rate), observed),
        "expected": float(held_out.end.sum()),
        "observed": float(observed.sum()),
        "calibration": calibration(held_out.end, observed),
    }


def fit_baselines(latents: Latents, validation: NDArray[np.bool_]) -> Baselines:
    """Baselines fitted on the episodes that are not held out."""
    lengths = np.where(validation & ~validation.all(), 0, latents.ends - latents.starts - 1)
    spans = zip(latents.starts, latents.starts + lengths, strict=True)
    rows = np.concatenate([np.arange(*span) for span in spans])
    return Baselines.fit(*_transitions(latents, rows[:MAX_ROWS]))


def _terminations(latents: Latents) -> Array:
    """(rows,) 1 at the last step of an episode that terminated."""
    ends = np.zeros(len(latents.rewards))
    ends[latents.ends[latents.terminated] - 2] = 1
    return ends


def _transitions(latents: Latents, rows: NDArray[np.int64]) -> tuple[Array, Array, Array, Array]:
    """The latents before every step (the same one at an episode's start), at it, its encoded action, and after it."""
    first = np.isin(rows, latents.starts)
    previous = latents.means[np.where(first, rows, rows - 1)]
    return previous, latents.means[rows], latents.space.encode(latents.actions[rows]), latents.means[rows + 1]


@torch.inference_mode()
def _predict(model: Predictor, untrained: Predictor, latents: Latents, mask: NDArray[np.bool_]) -> Predictions:
    """Predictions along the episodes of `mask`, the first that have `MAX_ROWS` steps."""
    lengths = latents.ends - latents.starts - 1
    episodes = np.flatnonzero(mask & (lengths > 0))
    episodes = episodes[: max(int(np.searchsorted(np.cumsum(lengths[episodes]), MAX_ROWS)), 1)]
    episodes = episodes[np.argsort(lengths[episodes], kind="stable")]  # so that a batch has similar lengths
    batches = []
    for part in np.array_split(episodes, math.ceil(len(episodes) / EPISODES_PER_BATCH)):
        batch = Windows(latents, mask, int(lengths[part].max()), len(part), 0).cut(np.stack([part, 0 * part], 1))
        batches.append(_predict_batch(model, untrained, latents, part, batch))
    return Predictions(*(np.concatenate(column) for column in zip(*batches, strict=True)))


def _predict_batch(
    model: Predictor, untrained: Predictor, latents: Latents, episodes: NDArray[np.int64], batch: WindowBatch
) -> tuple[Array, ...]:
    z, following, actions = (
        torch.from_numpy(part) for part in (batch.means[:, :-1], batch.means[:, 1:], batch.actions)
    )
    prediction, untrained_hidden = model.one_step(z, actions, following), untrained.hidden_states(z, actions)
    exists = batch.mask.astype(bool)
    rows = latents.starts[episodes][:, None] + np.arange(exists.shape[1])
    columns = (
        rows,
        np.broadcast_to(episodes[:, None], exists.shape),
        prediction.nll.numpy(),
        (prediction.z - following).square().mean(-1).numpy(),
        prediction.reward.numpy(),
        prediction.end.numpy(),
        *(np.pad(part.numpy()[:, :-1], ((0, 0), (1, 0), (0, 0))) for part in (prediction.hidden, untrained_hidden)),
    )
    return tuple(np.asarray(column)[exists] for column in columns)


def _velocity(
    latents: Latents, velocities: Mapping[str, Array], training: Predictions, held_out: Predictions
) -> dict[str, dict[str, float | None]]:
    """R2 on held-out steps of a linear probe of z alone, of [z, h], and of [z, untrained h]."""
    if not velocities:
        return {}
    columns = np.stack(list(velocities.values()), axis=1)
    scores = []
    for name in ("", "hidden", "untrained_hidden"):
        inputs = [
            np.concatenate([latents.means[part.rows], *([getattr(part, name)] if name else [])], axis=1)
            for part in (training, held_out)
        ]
        scores.append(fit_and_score(inputs[0], columns[training.rows], inputs[1], columns[held_out.rows]))
    return {
        name: {
            key: None if math.isnan(score[place][0]) else score[place][0]
            for key, score in zip(("z", "z_h", "z_untrained_h"), scores, strict=True)
        }
        for place, name in enumerate(velocities)
    }


def format_predictions(metrics: dict[str, Any]) -> str:
    """The figures as text, one line per question."""
    lines = [
        "  on held-out episodes",
        f"  nats per dimension of the next z: M {metrics['nll']:.2f}, linear {metrics['nll_linear']:.2f}, "
        f"persistence {metrics['nll_persistence']:.2f}, mean {metrics['nll_mean']:.2f}",
        f"  squared error of the next z: M {metrics['error']:.4f}, linear {metrics['error_linear']:.4f}, "
        f"persistence {metrics['error_persistence']:.4f}, mean {metrics['error_mean']:.4f}",
    ]
    for horizon in HORIZONS:
        if errors := metrics["open_loop"].get(str(horizon)):
            parts = ", ".join(f"{name} {errors[name]:.4f}" for name in ("M", "linear", "persistence", "mean"))
            lines.append(f"  open loop, {horizon:>2} steps: {parts}")
    lines += [_position_line(name, errors) for name, errors in metrics.get("positions", {}).items()]
    newest = metrics.get("newest", {}).get("positions", {})
    lines += [_position_line(f"{name} in the newest episodes", errors) for name, errors in newest.items()]
    lines.append(f"  {format_event_rates(metrics.get('events', {}).get('rates', {}))}")
    reward, end = metrics["reward"], metrics["end"]
    if reward["rank_correlation"] is not None:
        recall = "" if reward["recall"] is None else f", recall of rare rewards {reward['recall']:.2f} at precision 0.5"
        lines.append(f"  reward: rank correlation {reward['rank_correlation']:.2f}{recall}")
    lines.append(
        f"  end: Brier score {end['brier']:.5f} (the rate alone: {end['brier_rate']:.5f}), {end['expected']:.1f} ends "
        f"expected, {end['observed']:.0f} observed"
    )
    lines += [
        f"  {name} (R2) from z {_score(r2['z'])}, [z, h] {_score(r2['z_h'])}, "
        f"[z, untrained h] {_score(r2['z_untrained_h'])}"
        for name, r2 in metrics["velocity"].items()
    ]
    return "\n".join(lines)


def _position_line(name: str, errors: dict[str, Any]) -> str:
    steps = sorted((step for step, error in errors.get("M", {}).items() if error is not None), key=int)
    predictors = [who for who in ("M", "linear", "persistence") if who in errors]
    parts = (f"{who} {', '.join(_short(errors[who].get(step)) for step in steps)}" for who in predictors)
    ahead = f"; {', '.join(steps)} steps ahead: {'; '.join(parts)}" if steps else ""
    return f"  error of {name}: V {_short(errors['V'])}{ahead}"


def _short(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3g}"


def _score(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"
