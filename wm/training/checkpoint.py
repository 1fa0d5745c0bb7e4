"""Checkpoints: everything needed to resume a training bit for bit, written whole or not at all.

A checkpoint is one safetensors file (model, optimizer) and a JSON, written last; without its JSON the file does not
count. The last one and the best are kept, and no older one to fall back to: damage is refused (decision 0022). Batches
and noise are functions of (seed, step), so no generator has to be saved.

The JSON has a digest of itself, and those of the recipe, of its tensors, of the last line of metrics, and of the JSONs
of the best checkpoint and of the one before. So the last one tells whether anything that a resumed training reads was
changed. The one before keeps its JSON alone: it names one that is gone, so that the loss of the last JSON is noticed.
"""

import hashlib
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor, nn

from wm.artifacts import chained_log, durable, manifest
from wm.artifacts.json_reader import COUNT, FIGURE, NUMBER, TEXT, Schema, table, table_of
from wm.artifacts.manifest import sha256_file
from wm.artifacts.runs import SCRATCH
from wm.errors import BadData
from wm.telemetry import metrics_log
from wm.training import weights

_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}  # of Adam, for each parameter that has had a gradient
_RECORD = {
    "step": COUNT,
    "scores": table({"validation_loss": NUMBER}, others=FIGURE),
    "recipe": TEXT,
    "tensors": TEXT,
    "metrics": TEXT,
    "kept": table_of(TEXT),
}


class Resumable(Protocol):
    """What a checkpoint saves: a model, its optimizer, and the rest as plain values."""

    @property
    def model(self) -> nn.Module:
        """The weights."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Its state."""

    @property
    def state_schema(self) -> Schema:
        """Of what `state` returns."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs besides weights and optimizer."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned, or another value of its schema."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk. `state` is the trainer's. `metrics_digest` is that of the last line of metrics before it;
    `kept` are the JSON files of the best checkpoint and of the one before, with their digests."""

    folder: Path
    step: int
    scores: dict[str, float]
    state: dict[str, Any]
    tensors_digest: str
    metrics_digest: str
    kept: dict[str, str]

    @property
    def score(self) -> float:
        """The validation loss, by which `best` is selected."""
        return self.scores["validation_loss"]

    @property
    def tensors(self) -> Path:
        """The safetensors file."""
        return self.folder / f"step-{self.step:08d}.safetensors"

    @property
    def record(self) -> Path:
        """The JSON with the digests."""
        return self.folder / f"step-{self.step:08d}.json"


class Checkpoints:
    """Checkpoints of the training in an artifact's folder; the lowest `validation_loss` is the best, and stays if
    `keep_best`. Raises BadData if one of them was changed or is missing."""

    def __init__(self, artifact: Path, trainer: Resumable, keep_best: bool = True) -> None:
        self.folder, self.trainer, self._keep_best = artifact / SCRATCH, trainer, keep_best
        self.model, self.optimizer = trainer.model, trainer.optimizer
        self._schema = table({**_RECORD, "state": trainer.state_schema})
        self._artifact, self._recipe = artifact, chained_log.start(artifact)
        durable.make_folder(self.folder)
        durable.sweep(self.folder)
        self._checkpoints = self._read_all()

    def all(self) -> list[Checkpoint]:
        """The checkpoints whose JSON is kept, oldest first."""
        return list(self._checkpoints)

    def _read_all(self) -> list[Checkpoint]:
        """The last checkpoint and those that it names; others are left by a kill that came before they were removed."""
        # By name, which has the step with leading zeros.
        records = sorted(self.folder.glob("step-*.json"))
        if not records:
            return []
        last = self._read_record(records[-1])
        checkpoints = []
        for name, digest in sorted(last.kept.items()):
            path = manifest.locate(self.folder, name)
            if not path.is_file() or sha256_file(path) != digest:
                self._refuse(path, f"is missing or not the one that {last.record.name} names")
            checkpoints.append(self._read_record(path))
        self._require_tensors(last)
        if self._keep_best and (best := _best([*checkpoints, last])) is not last:
            self._require_tensors(best)
        lines = {line.digest for line in metrics_log.chained(self._artifact)}
        if last.metrics_digest and last.metrics_digest not in lines:
            self._refuse(self._artifact / metrics_log.NAME, f"lacks lines that were there before {last.record.name}")
        return [*checkpoints, last]

    def _read_record(self, path: Path) -> Checkpoint:
        if not path.is_file():
            self._refuse(path, "is no file")
        record = manifest.parse_sealed(durable.read_bytes(path), str(path), self._schema, self._way_out)
        digests = record["tensors"], record["metrics"], record["kept"]
        checkpoint = Checkpoint(self.folder, record["step"], record["scores"], record["state"], *digests)
        if checkpoint.record != path or record["recipe"] != self._recipe:
            self._refuse(path, "is of another step or another training")
        return checkpoint

    def _require_tensors(self, checkpoint: Checkpoint) -> None:
        if not checkpoint.tensors.is_file() or sha256_file(checkpoint.tensors) != checkpoint.tensors_digest:
            self._refuse(checkpoint.tensors, f"is missing or does not match its checksum in {checkpoint.record.name}")

    def _refuse(self, path: Path, problem: str) -> NoReturn:
        raise BadData(f"{path} {problem}; {self._way_out}.")

    @property
    def _way_out(self) -> str:
        return f"restore it, or remove {self._artifact} to begin anew"

    def save(self, step: int, scores: dict[str, float]) -> None:
        """Save the state after `step` steps and remove the other checkpoints but the best."""
        metrics = chained_log.sync(self._artifact / metrics_log.NAME)
        checkpoint = Checkpoint(self.folder, step, scores, deepcopy(self.trainer.state()), "", metrics, {})
        weights.save(checkpoint.tensors, tensors_of(self.trainer))
        earlier = [old for old in self._checkpoints if old.step != step]
        best = _best([*earlier, checkpoint]) if self._keep_best else checkpoint
        kept = [old for old in earlier if old in (best, earlier[-1])]
        checkpoint = replace(
            checkpoint,
            tensors_digest=sha256_file(checkpoint.tensors),
            kept={old.record.name: sha256_file(old.record) for old in kept},
        )
        self._write_record(checkpoint)
        self._checkpoints = [*kept, checkpoint]
        for old in earlier:
            if old not in kept:
                durable.remove(old.record)
            if old != best:
                durable.remove(old.tensors)

    def _write_record(self, checkpoint: Checkpoint) -> None:
        record = {
            "step": checkpoint.step,
            "scores": checkpoint.scores,
            "state": checkpoint.state,
            "recipe": self._recipe,
            "tensors": checkpoint.tensors_digest,
            "metrics": checkpoint.metrics_digest,
            "kept": checkpoint.kept,
        }
        durable.write_bytes(checkpoint.record, manifest.sealed(record))

    def resume(self) -> int:
        """Load the last checkpoint. Returns its step, 0 without one."""
        if not self._checkpoints:
            return 0
        last = self._checkpoints[-1]
        try:
            load_tensors_into(self.trainer, self._read(last), str(last.tensors))
        except ValueError as error:
            # load_state_dict of an optimizer raises ValueError where the shapes of its moments differ.
            raise BadData(
                f"{last.tensors} has moments of other weights ({str(error)[:200]}); {self._way_out}."
            ) from error
        self.trainer.load_state(last.state)
        return last.step

    def best(self) -> Checkpoint:
        """The checkpoint with the lowest validation loss, the earliest of equals."""
        return _best(self._checkpoints)

    def load_best(self) -> Checkpoint:
        """Put the weights of the best checkpoint into the model."""
        best = self.best()
        _load_model(self.model, self._read(best), str(best.tensors))
        return best

    def _read(self, checkpoint: Checkpoint) -> dict[str, Tensor]:
        data = durable.read_bytes(checkpoint.tensors)
        if hashlib.sha256(data).hexdigest() != checkpoint.tensors_digest:
            self._refuse(checkpoint.tensors, "does not match its checksum")
        return weights.load_tensors(data, str(checkpoint.tensors))


def _best(checkpoints: list[Checkpoint]) -> Checkpoint:
    return min(checkpoints, key=lambda checkpoint: checkpoint.score)


def tensors_of(trainer: Resumable) -> dict[str, Tensor]:
    """The tensors of a checkpoint: weights, and the optimizer's moments."""
    tensors = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    for number, state in trainer.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
    return tensors


def load_tensors_into(trainer: Resumable, tensors: dict[str, Tensor], source: str) -> None:
    """Restore what `tensors_of` returned. Raises BadData for other weights; ValueError for moments of others."""
    _load_model(trainer.model, tensors, source)
    parameters = [parameter for group in trainer.optimizer.param_groups for parameter in group["params"]]
    numbers = {str(number): number for number in range(len(parameters))}
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            number, _, key = name.removeprefix("optimizer.").partition(".")
            if number not in numbers or key not in _MOMENTS:
                raise ValueError(f"{name} belongs to none of {len(parameters)} parameters")
            parameter = parameters[numbers[number]]
            if tensor.shape != (expected := torch.Size() if key == "step" else parameter.shape):
                raise ValueError(f"{name} has shape {list(tensor.shape)}, not {list(expected)}")
            state.setdefault(numbers[number], {})[key] = _in_memory_format_of(parameter, tensor)
    for position, moments in state.items():
        if lacking := _MOMENTS - moments.keys():
            raise ValueError(f"optimizer.{position}.{min(lacking)} is missing")
    groups = trainer.optimizer.state_dict()["param_groups"]
    for group in groups:  # a backward pass gives a gradient to all parameters of a group, or to none
        lacking = set(group["params"]) - state.keys()
        if 0 < len(lacking) < len(group["params"]):
            raise ValueError(f"optimizer.{min(lacking)} is missing")
    trainer.optimizer.load_state_dict({"state": state, "param_groups": groups})


def _load_model(model: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    prefix = "model."
    state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    weights.load_into(model, state, source)


def _in_memory_format_of(parameter: Tensor, moment: Tensor) -> Tensor:
    """The moment in its parameter's memory format: files are contiguous, weights may be channels_last, and a fused Adam
    pairs their elements by address."""
    return torch.empty_like(parameter).copy_(moment) if moment.shape == parameter.shape else moment
