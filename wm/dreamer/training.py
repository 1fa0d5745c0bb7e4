"""The loops around online training: progress, metrics, checkpoints, the memory guard, and a clean stop."""

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from wm.artifacts import durable
from wm.dreamer.online import AVERAGED_EPISODES, OnlineTraining
from wm.dreamer.open_loop import replay_strip
from wm.episodes.replay import ReplayBuffer
from wm.errors import BadData, MemoryProblem
from wm.models.dreamer.agent import Dreamer
from wm.report.plots import Curve, draw
from wm.runtime import Progress, Runtime
from wm.settings import DreamerSettings
from wm.telemetry import metrics_log
from wm.telemetry.malloc import keep_freed
from wm.telemetry.memory_guard import MemoryGuard
from wm.telemetry.metrics_log import MetricsLog

SHOWN = ("episode_return", "squared_error", "kl")  # metrics in the progress line
FINAL = ("squared_error", "reward", "continue", "kl")  # of the world model, in the artifact's metrics


def train(
    runtime: Runtime,
    label: str,
    training: OnlineTraining,
    settings: DreamerSettings,
    folder: Path,
    load_collected: Callable[[], ReplayBuffer] | None,
) -> float:
    """Resume a training or start it, and run it to its end, with metrics in `folder`; the world model is trained on
    collected episodes first, if there are any. A stop request or an exceeded memory limit leaves a checkpoint. Returns
    the seconds of earlier sessions."""
    keep_freed()
    resumed = training.resume()
    if resumed:
        runtime.log(f"{label}: resumes at step {training.counts.steps} of {settings.steps}")
    guard = MemoryGuard(runtime, folder, settings.steps + (settings.pretrain if load_collected else 0))
    step = training.position if resumed else -1
    log = MetricsLog(folder, step, training.buffer_bytes, runtime.log, runtime.track, runtime.clock)
    with closing(training), closing(log):
        loop = _Loop(runtime, label, training, settings, log, guard)
        if load_collected and training.counts.pretrained < settings.pretrain:
            loop.pretrain(load_collected())
        loop.train()
    return log.earlier_seconds


@dataclass(frozen=True)
class _Loop:
    runtime: Runtime
    label: str
    training: OnlineTraining
    settings: DreamerSettings
    log: MetricsLog
    guard: MemoryGuard
    not_finite: set[str] = field(default_factory=set)  # gradients, in the last line of the log

    def pretrain(self, collected: ReplayBuffer) -> None:
        """Train the world model on collected episodes."""
        training, total = self.training, self.settings.pretrain
        label = f"{self.label} (collected)"
        with self.runtime.progress(label, total, "updates", training.counts.pretrained) as progress:
            for metrics in training.pretrain(collected):
                done = training.counts.pretrained
                due = done % self.settings.log_every == 0 or done == total
                alarm = self._write(progress, done, _values(metrics), done == total) if due else ""
                self._checkpoint(due, alarm)

    def train(self) -> None:
        """Act and train until the steps are done or the target is reached."""
        training, counts = self.training, self.training.counts
        logged = counts.steps
        with self.runtime.progress(self.label, self.settings.steps, "steps", counts.steps) as progress:
            for metrics in training.train():
                ended, alarm = bool(training.end_reason), ""
                if ended or counts.steps - logged >= self.settings.log_every:
                    logged = counts.steps
                    alarm = self._write(progress, counts.steps, _values(metrics) | self._figures(), ended)
                self._checkpoint(ended or training.writer.part_is_full, alarm, ended)

    def _figures(self) -> dict[str, float]:
        training = self.training
        counts = training.counts
        figures: dict[str, float] = {
            "episodes": counts.episodes,
            "replay": len(training.writer.buffer),
        }
        if training.returns:
            figures["episode_return"] = float(np.mean(training.returns))
        return figures

    def _write(self, progress: Progress, done: int, values: dict[str, float], last: bool) -> str:
        """Write a line of metrics; returns why training must end, or an empty text. Raises BadData where gradients are
        not finite in two lines in a row or the `last` one: such updates change nothing."""
        counts = self.training.counts
        line = {"env_steps": counts.steps, "updates": counts.updates, **values}
        alarm = self.guard.check(self.log.write(self.training.position, line))
        not_finite = {name for name, value in values.items() if name.endswith("_norm") and not math.isfinite(value)}
        if again := not_finite if last else not_finite & self.not_finite:
            raise BadData(
                f"{self.label}: the gradient is not finite ({', '.join(sorted(again))}) at step {done}, so nothing is "
                "learned; --set world_learning_rate=... or actor_learning_rate=... lowers the step size."
            )
        self.not_finite.clear()
        self.not_finite.update(not_finite)
        progress.update(done, **{name: f"{values[name]:.4g}" for name in SHOWN if name in values})
        return alarm

    def _checkpoint(self, due: bool, alarm: str, ended: bool = False) -> None:
        """Save a checkpoint when it is due, and before an early end, which is raised."""
        stopping = self.runtime.stop_requested() and not ended
        if due or stopping or alarm:
            self.training.checkpoint()
        if alarm:
            raise MemoryProblem(f"{self.label}: {alarm}")
        if stopping:
            self.runtime.raise_if_stopped()


def _values(metrics: dict[str, Tensor]) -> dict[str, float]:
    return {name: value.item() for name, value in metrics.items()}


def save_pictures(folder: Path, title: str, model: Dreamer, buffer: ReplayBuffer) -> None:
    """Write the curve of training returns, whose log is in `folder`, and a film strip of an open loop."""
    lines = [line for line in metrics_log.read(folder) if "episode_return" in line]
    steps, returns = ([line[name] for line in lines] for name in ("env_steps", "episode_return"))
    curve = Curve(f"mean of the last {AVERAGED_EPISODES} training episodes", steps, returns)
    durable.write_bytes(folder / "returns.png", draw([curve], title, "environment step", "return"))
    if (strip := replay_strip(model, buffer)) is not None:
        durable.write_bytes(folder / "open-loop.png", strip)


def final_metrics(
    folder: Path, training: OnlineTraining, precision: str, *, capacity: int, validation_episodes: int
) -> dict[str, Any]:
    """The metrics of a finished training, whose log is in `folder`."""
    counts, returns = training.counts, training.returns
    lines = [line for line in metrics_log.read(folder) if "squared_error" in line]
    return {
        "env_steps": counts.steps,
        "validation_steps": counts.validation_steps,
        "updates": counts.updates,
        "actor_updates": counts.actor_updates,
        "episodes": counts.episodes,
        "ended": training.end_reason,
        "training_return": float(np.mean(returns)) if returns else None,
        "training_episodes": len(returns),
        "validation_return": training.validation,
        "validation_episodes": validation_episodes if training.validation is not None else 0,
        **{name: lines[-1][name] for name in FINAL if lines},
        "first_squared_error": lines[0]["squared_error"] if lines else None,
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "precision": precision,
        "capacity": capacity,
    }


def summarize(metrics: Mapping[str, Any]) -> str:
    """The metrics of a finished training in one sentence."""
    parts = [f"{metrics['env_steps']:,} env steps, {metrics['updates']:,} updates"]
    for name in ("training", "validation"):
        if metrics[f"{name}_return"] is not None:
            episodes = metrics[f"{name}_episodes"]
            parts.append(f"mean return of {episodes} {name} episodes {metrics[f'{name}_return']:.2f}")
    if (first := metrics["first_squared_error"]) is not None:
        parts.append(f"squared error a frame {metrics['squared_error']:.1f} ({first:.1f} at first)")
    return "; ".join(parts)
