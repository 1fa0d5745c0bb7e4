"""What M knows, beside what guesses as well: the figures at the end of `wm train-mdnrnn`.

All on held-out episodes, played through from their start with the mean z that C would see.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.episodes.latents import Latents
from wm.episodes.windows import WindowBatch, Windows
from wm.evaluation import baselines as forecast
from wm.evaluation.baselines import Baselines
from wm.evaluation.probe import read
from wm.models.mdnrnn.inference import MdnRnnCell
from wm.models.mdnrnn.network import MdnRnn, expected, log_likelihood

MOST_ROWS = 20_000  # of held-out steps, and of training steps that guesses and probes are fitted on
TOGETHER = 8  # episodes at a time
HORIZONS = (1, 5, 15, 50)
CONTEXT = 16  # real steps M sees before an open loop
OPEN_LOOPS = 256
DREAMS = 16  # of each, whose mean is judged
PRECISION = 0.5

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Played:
    """M and an untrained M along real episodes: N steps with the row of each, its episode, and what was said of the
    next. `hidden` and `untrained` (N, H) are h as C sees it beside the step's z."""

    rows: NDArray[np.int64]
    episodes: NDArray[np.int64]
    nll: Array
    error: Array
    reward: Array
    end: Array
    hidden: Array
    untrained: Array


def compare(
    model: MdnRnn, untrained: MdnRnn, latents: Latents, held: NDArray[np.bool_], velocities: Mapping[str, Array]
) -> dict[str, Any]:
    """Figures by name; None where there is nothing to judge by. `velocities` (rows,) are probed from [z, h]."""
    training = _play(model, untrained, latents, ~held)
    held = held if held.any() else ~held
    spared = _play(model, untrained, latents, held)
    guesses = Baselines.fit(*_steps(latents, training.rows))
    wanted = _steps(latents, spared.rows)
    found: dict[str, Any] = {"nll": float(spared.nll.mean())}
    found |= {f"nll_{name}": value for name, value in guesses.nll(*wanted).items()}
    before, now, actions, after = wanted
    found |= {
        "error": float(spared.error.mean()),
        "error_persistence": float(np.square(after - now).mean()),
        "error_mean": float(np.square(after - guesses.mean).mean()),
        "error_linear": float(np.square(after - guesses.linear(before, now, actions)).mean()),
    }
    found["open_loop"] = open_loop(model, guesses, latents, held)
    rewards = latents.rewards[spared.rows]
    normal = forecast.usual(latents.rewards[training.rows])
    found["reward"] = {
        "rank_correlation": forecast.rank_correlation(spared.reward, rewards),
        "recall": None
        if normal is None
        else forecast.recall(spared.reward, rewards, spared.episodes, normal, PRECISION),
    }
    ended = _ends(latents)
    rate = float(ended[training.rows].mean())
    found["end"] = {
        "brier": forecast.brier(spared.end, ended[spared.rows]),
        "brier_rate": forecast.brier(np.full(len(ended[spared.rows]), rate), ended[spared.rows]),
        "expected": float(spared.end.sum()),
        "happened": float(ended[spared.rows].sum()),
        "calibration": forecast.calibration(spared.end, ended[spared.rows]),
    }
    found["velocity"] = _velocities(latents, velocities, training, spared)
    return found


def fit_baselines(latents: Latents, held: NDArray[np.bool_]) -> Baselines:
    """What guesses as well, fitted on the episodes that are not held out."""
    lengths = np.where(held & ~held.all(), 0, latents.ends - latents.starts - 1)
    spans = zip(latents.starts, latents.starts + lengths, strict=True)
    rows = np.concatenate([np.arange(*span) for span in spans])
    return Baselines.fit(*_steps(latents, rows[:MOST_ROWS]))


def _ends(latents: Latents) -> Array:
    """(rows,) 1 at the last step of an episode that terminated."""
    ended = np.zeros(len(latents.rewards))
    ended[latents.ends[latents.terminated] - 2] = 1
    return ended


def _steps(latents: Latents, rows: NDArray[np.int64]) -> tuple[Array, Array, Array, Array]:
    """The latents before (the same one at an episode's start), at and after every step, and its encoded action."""
    first = np.isin(rows, latents.starts)
    before = latents.means[np.where(first, rows, rows - 1)]
    return before, latents.means[rows], latents.space.encode(latents.actions[rows]), latents.means[rows + 1]


@torch.inference_mode()
def _play(model: MdnRnn, untrained: MdnRnn, latents: Latents, chosen: NDArray[np.bool_]) -> Played:
    lengths = latents.ends - latents.starts - 1
    picked = np.flatnonzero(chosen & (lengths > 0))
    picked = picked[: max(int(np.searchsorted(np.cumsum(lengths[picked]), MOST_ROWS)), 1)]
    picked = picked[np.argsort(lengths[picked], kind="stable")]  # so that those played together are about as long
    parts = []
    for some in np.array_split(picked, math.ceil(len(picked) / TOGETHER)):
        batch = Windows(latents, chosen, int(lengths[some].max()), len(some), 0).cut(np.stack([some, 0 * some], 1))
        parts.append(_play_together(model, untrained, latents, some, batch))
    return Played(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _play_together(
    model: MdnRnn, untrained: MdnRnn, latents: Latents, episodes: NDArray[np.int64], batch: WindowBatch
) -> tuple[Array, ...]:
    z, after, actions = (torch.from_numpy(part) for part in (batch.means[:, :-1], batch.means[:, 1:], batch.actions))
    inputs = torch.cat([z, actions], -1)
    hidden, control = model.lstm(inputs)[0], untrained.lstm(inputs)[0]
    said = model.predict(z, hidden)
    there = batch.mask.astype(bool)
    rows = latents.starts[episodes][:, None] + np.arange(there.shape[1])
    columns = (
        rows,
        np.broadcast_to(episodes[:, None], there.shape),
        -log_likelihood(said, after).mean(-1).numpy(),
        (expected(said) - after).square().mean(-1).numpy(),
        said.reward.numpy(),
        model.end_probability(said).numpy(),
        *(np.pad(part.numpy()[:, :-1], ((0, 0), (1, 0), (0, 0))) for part in (hidden, control)),
    )
    return tuple(np.asarray(column)[there] for column in columns)


@torch.inference_mode()
def open_loop(
    model: MdnRnn, guesses: Baselines, latents: Latents, held: NDArray[np.bool_]
) -> dict[str, dict[str, float] | None]:
    """By horizon: squared error of the mean of 16 dreams after 16 real steps, beside persistence, the mean latent and
    the linear autoregression fed with its own guesses; None where episodes are too short."""
    starts = _open_loop_starts(latents, held)
    if not len(starts):
        return {str(horizon): None for horizon in HORIZONS}
    batch = Windows(latents, held, CONTEXT + HORIZONS[-1], len(starts), 0).cut(starts)
    z, actions = (torch.from_numpy(part).repeat(DREAMS, 1, 1) for part in (batch.means, batch.actions))
    cell, state = MdnRnnCell(model, len(z)), model.start(len(z))
    for step in range(CONTEXT):
        state = cell.step(z[:, step], actions[:, step], state)
    random = torch.Generator().manual_seed(0)
    last = batch.means[:, CONTEXT]
    now, before, dreamed = last, batch.means[:, CONTEXT - 1], z[:, CONTEXT]
    found: dict[str, dict[str, float] | None] = {}
    for ahead in range(1, HORIZONS[-1] + 1):
        step = CONTEXT + ahead - 1
        state = cell.step(dreamed, actions[:, step], state)
        dreamed = cell.draw(dreamed, state[0], 1.0, random).z
        before, now = now, guesses.linear(before, now, batch.actions[:, step]).astype(np.float32)
        if ahead in HORIZONS:
            there = batch.mask[:, step].astype(bool)
            mean = dreamed.view(DREAMS, *last.shape).mean(0).numpy()
            told = {"M": mean, "persistence": last, "mean": guesses.mean[None], "linear": now}
            errors = {name: np.square(guess - batch.means[:, step + 1])[there] for name, guess in told.items()}
            enough = there.sum() >= forecast.FEWEST
            found[str(ahead)] = {name: float(error.mean()) for name, error in errors.items()} if enough else None
    return found


def _open_loop_starts(latents: Latents, held: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(episode, first step) addresses, evenly over the held-out steps that have the context and the longest horizon
    after them where there are enough of those, else at least one step."""
    lengths = latents.ends - latents.starts - 1
    for needed in (CONTEXT + HORIZONS[-1], CONTEXT + 1):
        room = np.where(held, np.maximum(lengths - needed + 1, 0), 0)
        if room.sum() >= OPEN_LOOPS // 4:
            break
    if not room.sum():
        return np.empty((0, 2), np.int64)
    episodes = np.repeat(np.arange(len(room)), room)
    steps = np.arange(room.sum()) - np.repeat(np.cumsum(room) - room, room)
    chosen = np.unique(np.linspace(0, len(episodes) - 1, OPEN_LOOPS).astype(np.int64))
    return np.stack([episodes[chosen], steps[chosen]], axis=1)


def _velocities(
    latents: Latents, velocities: Mapping[str, Array], training: Played, spared: Played
) -> dict[str, dict[str, float | None]]:
    """R2 on held-out steps of a linear probe on z alone, on [z, h], and on [z, untrained h]."""
    if not velocities:
        return {}
    columns = np.stack(list(velocities.values()), axis=1)
    readings = []
    for name in ("", "hidden", "untrained"):
        inputs = [
            np.concatenate([latents.means[part.rows], *([getattr(part, name)] if name else [])], axis=1)
            for part in (training, spared)
        ]
        readings.append(read(inputs[0], columns[training.rows], inputs[1], columns[spared.rows]))
    return {
        name: {
            key: None if math.isnan(reading[place][0]) else reading[place][0]
            for key, reading in zip(("z", "z_h", "z_untrained_h"), readings, strict=True)
        }
        for place, name in enumerate(velocities)
    }


def table(found: dict[str, Any]) -> str:
    """The figures as text, one line per question."""
    lines = [
        "  on held-out episodes",
        f"  nats per dimension of the next z: M {found['nll']:.2f}, linear {found['nll_linear']:.2f}, "
        f"persistence {found['nll_persistence']:.2f}, marginal {found['nll_marginal']:.2f}",
        f"  squared error of the next z: M {found['error']:.4f}, linear {found['error_linear']:.4f}, "
        f"persistence {found['error_persistence']:.4f}, mean {found['error_mean']:.4f}",
    ]
    for ahead in HORIZONS:
        if errors := found["open_loop"][str(ahead)]:
            told = ", ".join(f"{name} {errors[name]:.4f}" for name in ("M", "linear", "persistence", "mean"))
            lines.append(f"  open loop, {ahead:>2} steps: {told}")
    reward, end = found["reward"], found["end"]
    if reward["rank_correlation"] is not None:
        more = "" if reward["recall"] is None else f", recall of the unusual {reward['recall']:.2f} at precision 0.5"
        lines.append(f"  reward: rank correlation {reward['rank_correlation']:.2f}{more}")
    lines.append(
        f"  end: Brier score {end['brier']:.5f} (always the rate: {end['brier_rate']:.5f}), "
        f"{end['expected']:.1f} ends expected, {end['happened']:.0f} happened"
    )
    lines += [
        f"  {name} (R2) from z {_told(r['z'])}, [z, h] {_told(r['z_h'])}, [z, untrained h] {_told(r['z_untrained_h'])}"
        for name, r in found["velocity"].items()
    ]
    return "\n".join(lines)


def _told(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"
