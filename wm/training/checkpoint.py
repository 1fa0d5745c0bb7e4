"""Checkpoints: everything needed to resume a training bit for bit, written whole or not at all.

A checkpoint is one safetensors file (model, optimizer) and a JSON with its digest, written last; without a matching
JSON the file does not count. The best and the last two are kept. Batches and noise are functions of (seed, step), so no
generator has to be saved.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from wm.artifacts import durable, json_reader
from wm.artifacts.json_reader import COUNT, FIGURE, TABLE, TEXT, table, table_of
from wm.artifacts.manifest import sha256_file
from wm.errors import BadData
from wm.training import weights

KEEP_LAST = 2
RECORD = table({"step": COUNT, "scores": table_of(FIGURE), "state": TABLE, "sha256": TEXT})


class Resumable(Protocol):
    """What a checkpoint saves: a model, its optimizer, and the rest as plain values."""

    @property
    def model(self) -> nn.Module:
        """The weights."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Its state."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs besides weights and optimizer."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk. `state` is the trainer's."""

    folder: Path
    step: int
    scores: dict[str, float]
    state: dict[str, Any]

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
        """The JSON with its digest."""
        return self.folder / f"step-{self.step:08d}.json"


class Checkpoints:
    """Checkpoints of a training in a folder; the lowest `validation_loss` is the best, and stays if `keep_best`."""

    def __init__(self, folder: Path, trainer: Resumable, keep_best: bool = True) -> None:
        self.folder, self.trainer, self._keep_best = folder, trainer, keep_best
        self.model, self.optimizer = trainer.model, trainer.optimizer
        durable.make_folder(folder)
        durable.sweep(folder)

    def all(self) -> list[Checkpoint]:
        """The checkpoints whose files are whole, oldest first."""
        checkpoints = []
        for path in sorted(self.folder.glob("step-*.json")):
            try:
                record = json_reader.parse(durable.read_bytes(path), str(path), RECORD)
                checkpoint = Checkpoint(self.folder, record["step"], record["scores"], record["state"])
                if sha256_file(checkpoint.tensors) == record["sha256"]:
                    checkpoints.append(checkpoint)
            except (OSError, BadData):
                continue
        return checkpoints

    def save(self, step: int, scores: dict[str, float]) -> None:
        """Save the state after `step` steps and remove those that are neither the best nor among the last two."""
        checkpoint = Checkpoint(self.folder, step, scores, self.trainer.state())
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
        weights.save(checkpoint.tensors, tensors)
        digest = sha256_file(checkpoint.tensors)
        record = {"step": step, "scores": scores, "state": checkpoint.state, "sha256": digest}
        durable.write_json(checkpoint.record, record)
        best = self.best().step if self._keep_best else -1
        for old in self.all()[:-KEEP_LAST]:
            if old.step != best:
                durable.remove(old.record)
                durable.remove(old.tensors)

    def resume(self) -> int:
        """Load the last whole checkpoint. Returns its step, 0 without one."""
        checkpoints = self.all()
        if not checkpoints:
            return 0
        last = checkpoints[-1]
        try:
            self._restore(last)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise BadData(
                f"{last.record} lacks a value or has one of another type ({str(error)[:200]}); remove {self.folder} to "
                "train from the beginning."
            ) from error
        return last.step

    def _restore(self, last: Checkpoint) -> None:
        tensors = self._read(last)
        self._load_model(tensors, last)
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, number, key = name.split(".", 2)
                state.setdefault(int(number), {})[key] = _in_memory_format_of(parameters[int(number)], tensor)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.trainer.load_state(last.state)

    def best(self) -> Checkpoint:
        """The checkpoint with the lowest validation loss, the earliest of equals."""
        return min(self.all(), key=lambda checkpoint: checkpoint.score)

    def load_best(self) -> Checkpoint:
        """Put the weights of the best checkpoint into the model."""
        best = self.best()
        self._load_model(self._read(best), best)
        return best

    def _read(self, checkpoint: Checkpoint) -> dict[str, Tensor]:
        return weights.load_tensors(durable.read_bytes(checkpoint.tensors), str(checkpoint.tensors))

    def _load_model(self, tensors: dict[str, Tensor], checkpoint: Checkpoint) -> None:
        prefix = "model."
        model = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        weights.load_into(self.model, model, str(checkpoint.tensors))


def _in_memory_format_of(parameter: Tensor, moment: Tensor) -> Tensor:
    """The moment in its parameter's memory format: files are contiguous, weights may be channels_last, and a fused Adam
    pairs their elements by address."""
    return torch.empty_like(parameter).copy_(moment) if moment.shape == parameter.shape else moment
