"""M's open-loop predictions, over many steps from the actions alone, compared with baselines, on held-out episodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.episodes.latents import Latents
from wm.episodes.windows import Windows
from wm.evaluation.baselines import Baselines
from wm.evaluation.position_probe import PositionProbe, fit_position_probe, mean_error
from wm.models.mdnrnn.cell import make_cell
from wm.models.mdnrnn.predictor import Predictor
from wm.stats import MIN_EVENTS, grouped_half_width

PROBE_ROWS = 20_000  # of training steps that the probe of positions is fitted on
HORIZONS = (1, 5, 15, 30, 50)  # steps ahead
CONTEXT = 16  # real steps before an open loop
# As many as give an interval of the errors; with 16 samples each, 4,096 dreams at a time.
OPEN_LOOPS = 256
# Samples of each open loop. M's own expectation as input leaves the latents it knows (Pong, 50 steps: 2.1, not 1.5).
SAMPLES = 16

Array = NDArray[np.floating[Any]]


def open_loop_errors(
    model: Predictor, baselines: Baselines, latents: Latents, validation: NDArray[np.bool_]
) -> dict[str, dict[str, Any] | None]:
    """By horizon: squared error of M's open-loop prediction, the mean of 16 samples after 16 real steps, and of the
    baselines; the linear one has its own predictions as inputs. None where episodes are too short. `difference_ci95`
    has, by baseline, the half-width of the 95 % interval of M's error minus the baseline's."""
    return latent_errors(latents, list(open_loops(model, baselines, latents, validation)))


@dataclass(frozen=True)
class OpenLoops:
    """Predictions of the latents in `rows` (N,) by predictor, (samples, N, Z), and the episode of each."""

    horizon: int
    rows: NDArray[np.int64]
    episodes: NDArray[np.int64]
    predictions: dict[str, Array]


@torch.inference_mode()
def open_loops(
    model: Predictor, baselines: Baselines, latents: Latents, validation: NDArray[np.bool_]
) -> Iterator[OpenLoops]:
    """The predictions of every horizon, from the same starts."""
    addresses = _open_loop_addresses(latents, validation)
    if not len(addresses):
        return
    batch = Windows(latents, validation, CONTEXT + HORIZONS[-1], len(addresses), 0).cut(addresses)
    z, actions = (torch.from_numpy(part).repeat(SAMPLES, 1, 1) for part in (batch.means, batch.actions))
    cell, state = make_cell(model, len(z)), model.initial_state(len(z))
    for step in range(CONTEXT):
        state = cell.step(z[:, step], actions[:, step], state)
    random = torch.Generator().manual_seed(0)
    last = batch.means[:, CONTEXT]
    linear, linear_previous, sample = last, batch.means[:, CONTEXT - 1], z[:, CONTEXT]
    for horizon in range(1, HORIZONS[-1] + 1):
        step = CONTEXT + horizon - 1
        predicted, state = cell.advance(sample, actions[:, step], state, 1.0, random, None)
        sample = predicted.z
        following = baselines.predict_linear(linear_previous, linear, batch.actions[:, step]).astype(np.float32)
        linear_previous, linear = linear, following
        if horizon in HORIZONS:
            exists = batch.mask[:, step].astype(bool)
            mean = np.broadcast_to(baselines.mean, last.shape)
            predictions = {"persistence": last[None], "mean": mean[None], "linear": linear[None]}
            predictions = {"M": sample.view(SAMPLES, *last.shape).numpy(), **predictions}
            rows = latents.starts[addresses[:, 0]] + addresses[:, 1] + step + 1
            yield OpenLoops(
                horizon, rows[exists], addresses[exists, 0], {name: p[:, exists] for name, p in predictions.items()}
            )


def latent_errors(latents: Latents, loops: Sequence[OpenLoops]) -> dict[str, dict[str, Any] | None]:
    """The errors of `open_loop_errors`, of these predictions."""
    errors: dict[str, dict[str, Any] | None] = {str(horizon): None for horizon in HORIZONS}
    for loop in loops:
        real = latents.means[loop.rows]
        if len(real) >= MIN_EVENTS:
            squares = {name: np.square(p.mean(0, p.dtype) - real) for name, p in loop.predictions.items()}
            errors[str(loop.horizon)] = _with_intervals(squares, loop.episodes)
    return errors


def probe_of_others(
    latents: Latents, positions: Mapping[str, Array], validation: NDArray[np.bool_]
) -> PositionProbe | None:
    """A probe of the positions (rows,), fitted on the episodes that are not held out; None where none vary."""
    held_out = np.repeat(validation, latents.ends - latents.starts)
    fitted = np.flatnonzero(~held_out if not held_out.all() else held_out)
    fitted = fitted[:: max(len(fitted) // PROBE_ROWS, 1)]
    return fit_position_probe(latents.means[fitted], {name: p[fitted] for name, p in positions.items()}, 0)


def position_errors(
    probe: PositionProbe,
    latents: Latents,
    positions: Mapping[str, Array],
    episodes: NDArray[np.bool_],
    loops: Sequence[OpenLoops],
) -> dict[str, dict[str, Any]]:
    """By visible object: root mean squared error, in the units of its label, of what the probe reads in the episodes of
    the mask from V's z (`V`), and from the open-loop predictions by horizon."""
    real = np.stack([positions[name] for name in probe.names], 1)
    scored = np.flatnonzero(np.repeat(episodes, latents.ends - latents.starts))
    errors: dict[str, dict[str, Any]] = {
        name: {"V": error}
        for name, error in mean_error(probe.names, probe(latents.means[scored]), real[scored]).items()
    }
    for loop in loops:
        for predictor, prediction in loop.predictions.items():
            read = probe(prediction.astype(np.float32)).mean(0)
            for name, error in mean_error(probe.names, read, real[loop.rows]).items():
                errors[name].setdefault(predictor, {})[str(loop.horizon)] = error
    return errors


def _with_intervals(squares: dict[str, Array], episodes: NDArray[np.int64]) -> dict[str, Any]:
    """The mean of the squared errors (N, Z) of every predictor, and the half-widths of M's differences from the others,
    paired and by episode (N,)."""
    own = {name: square.mean(axis=1, dtype=np.float64) for name, square in squares.items()}
    baselines = (name for name in squares if name != "M")
    return {
        **{name: float(square.mean()) for name, square in squares.items()},
        "difference_ci95": {name: grouped_half_width(own["M"] - own[name], episodes) for name in baselines},
    }


def _open_loop_addresses(latents: Latents, validation: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(episode, first step) of open loops, evenly over the held-out steps with the context and the longest horizon
    after them if there are enough of those, else with at least one step."""
    lengths = latents.ends - latents.starts - 1
    for needed in (CONTEXT + HORIZONS[-1], CONTEXT + 1):
        room = np.where(validation, np.maximum(lengths - needed + 1, 0), 0)
        # A quarter is enough for an interval; episodes that are shorter serve only if there are fewer.
        if room.sum() >= OPEN_LOOPS // 4:
            break
    if not room.sum():
        return np.empty((0, 2), np.int64)
    episodes = np.repeat(np.arange(len(room)), room)
    steps = np.arange(room.sum()) - np.repeat(np.cumsum(room) - room, room)
    subset = np.unique(np.linspace(0, len(episodes) - 1, OPEN_LOOPS).astype(np.int64))
    return np.stack([episodes[subset], steps[subset]], axis=1)
