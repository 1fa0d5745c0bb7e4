"""What a linear probe reads from V's latents: the gate at the end of `wm train-vae`."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from stages import console
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.errors import BadData
from wm.evaluation.probe import ProbeResult, read
from wm.models.vae.networks import Vae
from wm.seeding import generator

TRAINED_ON, SCORED_ON = 4000, 2000  # frames
GOOD = 0.9


def spread_rows(dataset: Dataset, chosen: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Up to `count` rows, evenly from the chosen episodes."""
    rows = np.flatnonzero(np.repeat(chosen, np.diff(dataset.ends, prepend=0)))
    return rows[np.unique(np.linspace(0, len(rows) - 1, count).astype(np.int64))]


def probe(dataset: Dataset, held: NDArray[np.bool_], model: Vae, untrained: Vae, seed: int) -> dict[str, ProbeResult]:
    """What is read of every label from a sampled z of `model`, scored on held-out episodes; empty without labels or
    without held-out episodes."""
    names = dataset.label_names
    if not names or not held.any():
        return {}
    labels = _asked(dataset)
    rows = [spread_rows(dataset, ~held, TRAINED_ON), spread_rows(dataset, held, SCORED_ON)]
    random = generator(seed, "probe")
    found = []
    for network in (model, untrained):
        seen = [_sampled(network, dataset, part, random) for part in rows]
        found.append(read(seen[0], labels[rows[0]], seen[1], labels[rows[1]]))
    pairs = zip(names, *found, strict=True)
    return {name: ProbeResult(r2, error, control[0], count) for name, (r2, error, count), control in pairs}


def velocities(dataset: Dataset) -> dict[str, NDArray[np.float64]]:
    """(rows,) of every motion the environment tells: its velocities, and of what moves the difference from the row
    before, NaN where there is none."""
    known = EnvConfig(**dataset.recipe["env"]).spec().probe
    if known is None or not dataset.label_names:
        return {}
    labels = dataset.column("labels").astype(np.float64)
    columns = {name: labels[:, place] for place, name in enumerate(dataset.label_names)}
    found = {name: columns[name] for name in known.velocities}
    first = np.concatenate([[0], dataset.ends[:-1]])
    for name in known.moving:
        change = np.diff(columns[name], prepend=np.nan)
        change[first] = np.nan
        found[f"motion of {name}"] = change
    return found


def _asked(dataset: Dataset) -> NDArray[np.float32]:
    """The labels, NaN where a thing is not there or a reading would mean little."""
    labels = np.array(dataset.column("labels"), np.float32)
    known = EnvConfig(**dataset.recipe["env"]).spec().probe
    for name, limit in known.within if known else ():
        if name in dataset.label_names:
            column = labels[:, list(dataset.label_names).index(name)]
            column[np.abs(column) > limit] = np.nan
    return labels


@torch.inference_mode()
def _sampled(model: Vae, dataset: Dataset, rows: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.float32]:
    """A sample of z for every row."""
    reader, samples = FrameReader(dataset), []
    for part in np.array_split(rows, max(len(rows) // 256, 1)):
        frames = np.concatenate([reader.read(int(row), int(row) + 1) for row in part])
        mean, logvar = (value.numpy() for value in model.encode(torch.from_numpy(frames)))
        samples.append(mean + np.exp(0.5 * logvar) * random.standard_normal(mean.shape).astype(np.float32))
    return np.concatenate(samples)


def judge(readings: dict[str, ProbeResult], env: EnvConfig, require: float) -> str:
    """What was read, in words. Warns below 0.9; raises BadData below `require`. What a single frame cannot show, such
    as a speed, is told but not judged."""
    if not readings:
        return ""
    known = env.spec().probe
    hidden = known.hidden if known else ()
    judged = {name: r for name, r in readings.items() if name not in hidden and not math.isnan(r.r2)}
    if judged:
        worst = min(judged, key=lambda name: judged[name].r2)
        r2, error, control = judged[worst].r2, judged[worst].error, judged[worst].untrained
        told = (
            f"V shows {worst} with R2 {r2:.2f} (error {error:.3g}; untrained {control:.2f}) to a probe of a sampled z"
        )
        if require > max(r2, 0):
            raise BadData(
                f"{told}, but --require-probe asks for {require:g}; train longer (--steps), collect more, or drop the "
                "option: the training is kept."
            )
        if r2 < GOOD:
            console.say(f"warning: {told}; {GOOD} is good")
    told = ", ".join(f"{name} {r.r2:.2f}" for name, r in readings.items() if not math.isnan(r.r2))
    return f"a linear probe of a sampled z reads {told}" if told else "too few held-out frames to probe"
