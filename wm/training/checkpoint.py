"""Checkpoints: all that continues a training run bit for bit, written whole or not at all.

A checkpoint is one safetensors file (model, optimizer) and a JSON with its digest, written last; what has no matching
JSON does not exist. The best and the last two are kept. Batches and noise are functions of (seed, step), so no
generator has to be saved.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from wm.artifacts import durable
from wm.artifacts.manifest import sha256_file
from wm.training import weights

KEEP_LAST = 2


@dataclass(frozen=True)
class Point:
    """A checkpoint on disk."""

    folder: Path
    step: int
    scores: dict[str, float]

    @property
    def score(self) -> float:
        """What `best` means: the validation loss."""
        return self.scores["validation_loss"]

    @property
    def tensors(self) -> Path:
        """The safetensors file."""
        return self.folder / f"step-{self.step:08d}.safetensors"

    @property
    def record(self) -> Path:
        """The JSON that makes it exist."""
        return self.folder / f"step-{self.step:08d}.json"


class Checkpoints:
    """Checkpoints of one model and its optimizer in a folder; the lowest `validation_loss` is the best."""

    def __init__(self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.folder, self.model, self.optimizer = folder, model, optimizer
        durable.make_folder(folder)
        durable.sweep(folder)

    def points(self) -> list[Point]:
        """Checkpoints whose files are whole, oldest first."""
        found = []
        for path in sorted(self.folder.glob("step-*.json")):
            try:
                record = json.loads(path.read_bytes())
                point = Point(self.folder, int(record["step"]), dict(record["scores"]))
                if sha256_file(point.tensors) == record["sha256"]:
                    found.append(point)
            except (OSError, ValueError, KeyError):
                continue
        return found

    def save(self, step: int, scores: dict[str, float]) -> None:
        """Save the state after `step` steps and remove what is neither best nor among the last two."""
        point = Point(self.folder, step, scores)
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
        weights.save(point.tensors, tensors)
        durable.write_json(point.record, {"step": step, "scores": scores, "sha256": sha256_file(point.tensors)})
        points = self.points()
        best = min(points, key=lambda item: item.score)
        for old in points[:-KEEP_LAST]:
            if old.step != best.step:
                old.record.unlink(missing_ok=True)
                old.tensors.unlink(missing_ok=True)

    def resume(self) -> int:
        """Load the last whole checkpoint. Returns its step, 0 if there is none."""
        points = self.points()
        if not points:
            return 0
        tensors = self._read(points[-1])
        self._load_model(tensors, points[-1])
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, number, key = name.split(".", 2)
                state.setdefault(int(number), {})[key] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        return points[-1].step

    def load_best(self) -> Point:
        """Put the weights of the best checkpoint into the model."""
        best = min(self.points(), key=lambda item: item.score)
        self._load_model(self._read(best), best)
        return best

    def _read(self, point: Point) -> dict[str, Tensor]:
        return weights.load_tensors(point.tensors.read_bytes(), str(point.tensors))

    def _load_model(self, tensors: dict[str, Tensor], point: Point) -> None:
        prefix = "model."
        found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        weights.load_into(self.model, found, str(point.tensors))
