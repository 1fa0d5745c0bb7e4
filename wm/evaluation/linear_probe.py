"""What a linear probe decodes from V's latents: the check at the end of `wm train-vae`.

The probe is a ridge regression from a sampled z to the environment's labels, fitted on training episodes and scored on
held-out ones. A sample is probed, not the mean: the mean of an untrained encoder already gives a ball's height (R2
0.7), while M and C can rely on what survives the sample's noise.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.envs.labels import LIVES
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader, evenly_spaced_rows
from wm.errors import BadData
from wm.models.vae.networks import Vae
from wm.seeding import generator
from wm.stats import ridge_regression

FITTED_FRAMES, SCORED_FRAMES = 4000, 2000  # at most, evenly over the training and the validation episodes
# Any number would do; it bounds the memory of an encoding.
FRAMES_PER_BATCH = 256
MIN_ROWS = 50  # with a label, below which it has no score
GOOD_R2 = 0.9  # below it a warning names the worst label

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ProbeResult:
    """How well a label is decoded: R2 and root mean squared error (in the label's units) on held-out rows, and the R2
    of the same network untrained."""

    r2: float
    error: float
    untrained: float
    rows: int

    def as_json(self) -> dict[str, float | None]:
        """Plain values; None where there is no score."""
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, float | None]) -> "ProbeResult":
        """The result whose `as_json` these are; NaN where there is no score."""
        r2, error, untrained = (
            math.nan if (value := values.get(name)) is None else value for name in ("r2", "error", "untrained")
        )
        return cls(r2, error, untrained, int(values.get("rows") or 0))


def probe_vae(
    dataset: Dataset, validation: NDArray[np.bool_], model: Vae, untrained: Vae, seed: int
) -> dict[str, ProbeResult]:
    """How well every label is decoded from a sampled z of `model`, scored on the `validation` episodes; empty without
    labels or without validation episodes."""
    names = [name for name in dataset.label_names if name != LIVES]
    if not names or not validation.any():
        return {}
    labels = labels_within_limits(dataset)[:, [dataset.label_names.index(name) for name in names]]
    fitted = evenly_spaced_rows(dataset, ~validation, FITTED_FRAMES)
    scored = evenly_spaced_rows(dataset, validation, SCORED_FRAMES)
    random = generator(seed, "probe")
    scores = []
    for network in (model, untrained):
        z, held_out_z = (_sample_latents(network, dataset, rows, random) for rows in (fitted, scored))
        scores.append(fit_and_score(z, labels[fitted], held_out_z, labels[scored]))
    pairs = zip(names, *scores, strict=True)
    return {name: ProbeResult(r2, error, control[0], rows) for name, (r2, error, rows), control in pairs}


def fit_and_score(z: Array, labels: Array, held_out_z: Array, held_out_labels: Array) -> list[tuple[float, float, int]]:
    """(R2, error, rows) of a probe of every label column from (N, Z) latents. NaN labels are left out; columns that are
    too rare or do not vary give NaN."""
    # A latent without deviation stays 0 and does not divide by 0.
    mean, deviation = z.mean(axis=0), z.std(axis=0) + 1e-8
    inputs, held_out = (np.c_[(part - mean) / deviation, np.ones(len(part))] for part in (z, held_out_z))
    return [
        _fit_and_score_column(inputs, labels[:, column], held_out, held_out_labels[:, column])
        for column in range(labels.shape[1])
    ]


def _fit_and_score_column(
    inputs: Array, label: Array, held_out_inputs: Array, held_out_label: Array
) -> tuple[float, float, int]:
    fitted, scored = np.isfinite(label), np.isfinite(held_out_label)
    rows = int(scored.sum())
    # A label that does not vary has no R2.
    if fitted.sum() < MIN_ROWS or rows < MIN_ROWS or held_out_label[scored].std() < 1e-6:
        return float("nan"), float("nan"), rows
    x, y = inputs[fitted].astype(np.float64), label[fitted].astype(np.float64)
    offset = y.mean()
    weights = ridge_regression(x, y - offset)
    residual = held_out_inputs[scored] @ weights + offset - held_out_label[scored]
    square = np.square(residual).mean()
    return float(1 - square / held_out_label[scored].var()), float(np.sqrt(square)), rows


def velocities(datasets: Sequence[Dataset]) -> dict[str, NDArray[np.float64]]:
    """(rows of all datasets,) of every motion that the labels have: velocities, and of positions the difference from
    the row before, NaN at an episode's start."""
    parts = [_velocities(dataset) for dataset in datasets]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _velocities(dataset: Dataset) -> dict[str, NDArray[np.float64]]:
    spec = EnvConfig.of_recipe(dataset.recipe).spec().probe
    if spec is None or not dataset.label_names:
        return {}
    labels = dataset.column("labels").astype(np.float64)
    columns = {name: labels[:, place] for place, name in enumerate(dataset.label_names)}
    motions = {name: columns[name] for name in spec.velocities}
    first = np.concatenate([[0], dataset.ends[:-1]])
    for name in spec.moving:
        change = np.diff(columns[name], prepend=np.nan)
        change[first] = np.nan
        motions[f"motion of {name}"] = change
    return motions


def labels_within_limits(dataset: Dataset) -> NDArray[np.float32]:
    """The labels, NaN where an object is absent or outside the limits of the environment's probe."""
    labels = np.array(dataset.column("labels"), np.float32)
    spec = EnvConfig.of_recipe(dataset.recipe).spec().probe
    for name, limit in spec.within if spec else ():
        if name in dataset.label_names:
            column = labels[:, list(dataset.label_names).index(name)]
            column[np.abs(column) > limit] = np.nan
    return labels


@torch.inference_mode()
def _sample_latents(
    model: Vae, dataset: Dataset, rows: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.float32]:
    """A sample of z for every row."""
    reader, samples = FrameReader(dataset), []
    for part in np.array_split(rows, max(len(rows) // FRAMES_PER_BATCH, 1)):
        frames = np.concatenate([reader.read(int(row), int(row) + 1) for row in part])
        mean, logvar = (value.numpy() for value in model.encode(torch.from_numpy(frames)))
        # The noise is numpy's, from a seed of its own, so that both networks are probed alike.
        samples.append(mean + np.exp(0.5 * logvar) * random.standard_normal(mean.shape).astype(np.float32))
    return np.concatenate(samples)


def summarize_probe(
    results: dict[str, ProbeResult], env: EnvConfig, required_r2: float, log: Callable[[str], None]
) -> str:
    """The results in words. Logs a warning below 0.9; raises BadData below `required_r2`, and where that is not 0 and
    nothing could be judged. What a single frame cannot show, such as a velocity, is reported but not judged."""
    spec = env.spec().probe
    hidden = spec.hidden if spec else ()
    judged = {name: result for name, result in results.items() if name not in hidden and not math.isnan(result.r2)}
    if judged:
        name, worst = min(judged.items(), key=lambda item: item[1].r2)
        text = (
            f"a linear probe of a sampled z decodes {name} with R2 {worst.r2:z.2f} (error {worst.error:.3g}; untrained "
            f"V {worst.untrained:z.2f})"
        )
        if required_r2 > max(worst.r2, 0):
            raise BadData(
                f"{text}, below require_probe={required_r2:g}; train longer (--steps), collect more, or lower it: the "
                "training is kept."
            )
        if worst.r2 < GOOD_R2:
            log(f"warning: {text}; {GOOD_R2} is good")
    elif required_r2:
        why = "there are too few held-out frames" if results else "the episodes have no labels"
        raise BadData(
            f"nothing could be probed, for {why}, and require_probe={required_r2:g}; collect more, or leave it out: "
            "the training is kept."
        )
    if not results:
        return ""
    scores = ", ".join(f"{name} {result.r2:z.2f}" for name, result in results.items() if not math.isnan(result.r2))
    return f"R2 of a linear probe of a sampled z: {scores}" if scores else "too few held-out frames to probe"
